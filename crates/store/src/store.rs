//! The history as a whole: opened once, used from everywhere.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};

use crate::{
    Config, Error,
    database::{Database, args},
    migrations,
};

/// Whoever asks for something while the schema is being prepared waits for this long beside the time a connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The history. Clones are the same one.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    schema: watch::Sender<Schema>,
}

/// What is known of the schema of the database.
#[derive(Clone, Debug)]
enum Schema {
    /// Nobody has asked yet.
    Unknown,
    /// Somebody is asking.
    Preparing,
    /// It is what this version needs; the number is that of its last step.
    Fits(i64),
    /// It could not be seen, or does not fit. The next who asks tries again.
    Failed(Error),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

/// What a database that answers says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How long it took to answer.
    pub latency: Duration,
    /// Where it is.
    pub place: String,
    /// The number of the last step of its schema.
    pub schema: i64,
}

impl Store {
    /// Opens the history without asking the database for anything, so that a process starts while that is down.
    ///
    /// The first use connects, checks the ledger and brings the schema up to date. Until that has succeeded, each use tries
    /// again. Has to be called within a tokio runtime.
    pub fn open(config: Config) -> Self {
        Self {
            shared: Arc::new(Shared {
                database: Database::new(config),
                schema: watch::Sender::new(Schema::Unknown),
            }),
        }
    }

    /// Opens the history and makes sure that it can be used.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let store = Self::open(config);
        store.prepared().await?;
        Ok(store)
    }

    /// Whether the database answers, and has the schema that this version needs.
    pub async fn ready(&self) -> Result<Health, Error> {
        let schema = self.prepare().await?;
        let begun = Instant::now();
        let database = &self.shared.database;
        database
            .rows("asking whether it answers", "no table", "SELECT 1", args![])
            .await?;
        Ok(Health {
            latency: begun.elapsed(),
            place: self.place().to_owned(),
            schema,
        })
    }

    /// Where the database is, for people.
    pub fn place(&self) -> &str {
        self.shared.database.config().place()
    }

    /// How much of the end of a log is kept.
    pub fn log_tail_bytes(&self) -> usize {
        self.shared.database.config().log_tail_bytes
    }

    /// Ends all connections. Whatever is asked after that fails.
    pub async fn close(&self) {
        self.shared.database.close().await;
    }

    /// The database, once its schema is known to fit.
    pub(crate) async fn prepared(&self) -> Result<&Database, Error> {
        self.prepare().await?;
        Ok(&self.shared.database)
    }

    /// One task prepares the schema, whoever asks and however many; they share what comes of it. It goes on when whoever asked
    /// first has gone away, because a long step that is always begun anew would never end.
    async fn prepare(&self) -> Result<i64, Error> {
        if let Schema::Fits(number) = *self.shared.schema.borrow() {
            return Ok(number);
        }
        let mut seen = self.shared.schema.subscribe();
        let is_mine = self.shared.schema.send_if_modified(|schema| {
            let idle = matches!(schema, Schema::Unknown | Schema::Failed(_));
            if idle {
                *schema = Schema::Preparing;
            }
            idle
        });
        if is_mine {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                let done = migrations::prepare(&shared.database).await;
                shared
                    .schema
                    .send_replace(done.map_or_else(Schema::Failed, Schema::Fits));
            });
        }
        let limit = self.shared.database.config().connect_timeout + PATIENCE;
        let settled = timeout(
            limit,
            seen.wait_for(|schema| matches!(schema, Schema::Fits(_) | Schema::Failed(_))),
        )
        .await;
        match settled {
            Ok(Ok(schema)) => match &*schema {
                Schema::Fits(number) => Ok(*number),
                Schema::Failed(error) => Err(error.clone()),
                Schema::Unknown | Schema::Preparing => Err(self.still_preparing()),
            },
            // The sender lives as long as this store does.
            Ok(Err(_)) | Err(_) => Err(self.still_preparing()),
        }
    }

    fn still_preparing(&self) -> Error {
        Error::Down {
            doing: "using it",
            place: self.place().to_owned(),
            why: "its schema is still being prepared".to_owned(),
        }
    }
}
