//! What can go wrong with the history, in words for the people who read it.

/// Why something of the history could not be done. No variant carries a secret: of an address only host, port and name are told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable, or the address of the database, is wrong.
    #[error("{name} is {value:?}: {why}")]
    Setting {
        name: &'static str,
        value: String,
        why: String,
    },
    /// The database cannot be reached, does not answer in time, or turns us away.
    #[error("the database ({place}) is down, so {doing} was not possible: {why}")]
    Down {
        doing: &'static str,
        place: String,
        why: String,
    },
    /// The database answered, and the answer was an error.
    #[error("the database ({place}) refused {doing}: {why}")]
    Refused {
        doing: &'static str,
        place: String,
        why: String,
    },
    /// The schema is not one that this version can work with.
    #[error("the schema of the database ({place}) does not fit this version: {why}")]
    Ledger { place: String, why: String },
    /// The cursor of a list is not one that this list gave out.
    #[error("the cursor cannot be used: {why}; start again without one")]
    Cursor { why: &'static str },
    /// A filter of a list that cannot be.
    #[error("{field} is {value:?}: {why}")]
    Query {
        field: &'static str,
        value: String,
        why: String,
    },
    /// What was given to be remembered is not a run.
    #[error("the object is not a run that can be remembered: {field} {why}")]
    Record { field: &'static str, why: String },
    /// Something that is stored cannot be read.
    #[error("{field} of {table} in the database cannot be read: {why}")]
    Unreadable {
        table: &'static str,
        field: &'static str,
        why: String,
    },
}

impl Error {
    /// Whether the same call may well succeed later, without anybody changing it.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }

    /// Whether the caller asked for something that cannot be.
    pub fn is_bad_request(&self) -> bool {
        matches!(self, Self::Cursor { .. } | Self::Query { .. })
    }
}

/// Whether this error means that the database is away or turns us away, as against having found fault with what we asked.
pub(crate) fn means_down(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(answer) => answer.code().is_some_and(|code| code_means_down(&code)),
        _ => false,
    }
}

/// Whether SQLite has somebody else in this file at the moment.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: u32 = 5;
    let sqlx::Error::Database(answer) = error else {
        return false;
    };
    let code = answer.code().and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

/// The codes of both databases: five characters of Postgres, or a number of SQLite whose lower eight bits are the kind.
fn code_means_down(code: &str) -> bool {
    if code.len() == 5 {
        // Connection trouble, no more room, shutting down or cancelled, not let in, no such database, and a server that
        // only reads since another one took over.
        let class = ["08", "53", "57", "28", "3D"];
        return class.iter().any(|class| code.starts_with(class)) || code == "25006";
    }
    // Busy, locked, read only, interrupted, input or output failed, damaged, full, cannot be opened, not a database.
    code.parse::<u32>()
        .is_ok_and(|code| [5, 6, 8, 9, 10, 11, 13, 14, 26].contains(&(code & 0xff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases_tell_away_from_at_fault() {
        for down in [
            "57P01", "08006", "53300", "28P01", "3D000", "25006", "5", "13", "266",
        ] {
            assert!(code_means_down(down), "{down}");
        }
        for fault in ["42601", "23505", "22P02", "1", "19", "2067", ""] {
            assert!(!code_means_down(fault), "{fault}");
        }
    }

    #[test]
    fn only_a_database_that_is_down_is_worth_another_try() {
        let down = Error::Down {
            doing: "reading runs",
            place: "x".to_owned(),
            why: "refused".to_owned(),
        };
        assert!(down.is_down() && !down.is_bad_request());
        assert!(Error::Cursor { why: "it is damaged" }.is_bad_request());
        assert_eq!(
            down.to_string(),
            "the database (x) is down, so reading runs was not possible: refused"
        );
    }
}
