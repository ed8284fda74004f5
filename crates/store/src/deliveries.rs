//! Deliveries of webhooks, so that one that comes again is recognised.

use jangar_api::phase::WebhookState;
use jiff::Timestamp;

use crate::{
    Error, Page, PageRequest, Store,
    conditions::Conditions,
    cursor::{Key, List, Paging},
    database::{Row, args, assembled},
    redact::withhold_text,
};

const TABLE: &str = "jangar_deliveries";

/// A delivery, and how far its processing has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Namespace and name of the ImplementationSource.
    pub source: String,
    /// As the forge numbers it.
    pub delivery_id: String,
    pub provider: String,
    pub event: String,
    pub external_id: Option<String>,
    pub received_at: Timestamp,
    pub state: WebhookState,
    pub attempts: i64,
    pub error: Option<String>,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

impl Store {
    /// Notes a delivery, or how far it has come. Says whether it is the first that is heard of it.
    pub async fn record_delivery(&self, delivery: &Delivery) -> Result<bool, Error> {
        let database = self.prepared().await?;
        let mut tx = database
            .begin("noting a delivery", database.config().query_timeout)
            .await?;
        let error = delivery.error.as_deref().map(withhold_text);
        let error = error.as_deref();
        let columns = [
            "source",
            "delivery_id",
            "provider",
            "event",
            "external_id",
            "received_at",
            "state",
            "attempts",
            "error",
            "expires_at",
        ];
        let values = args![
            &delivery.source,
            &delivery.delivery_id,
            &delivery.provider,
            &delivery.event,
            &delivery.external_id,
            delivery.received_at,
            delivery.state.as_str(),
            delivery.attempts,
            error,
            delivery.expires_at,
        ];
        let update = "UPDATE jangar_deliveries SET state = $3, attempts = $4, error = $5, expires_at = $6 \
                      WHERE source = $1 AND delivery_id = $2";
        let changed = args![
            &delivery.source,
            &delivery.delivery_id,
            delivery.state.as_str(),
            delivery.attempts,
            error,
            delivery.expires_at,
        ];
        let first = tx.insert(TABLE, &columns, vec![values]).await? > 0;
        if !first {
            tx.execute(update, changed).await?;
        }
        tx.commit().await?;
        Ok(first)
    }

    /// A page of the deliveries to a source, the last received first.
    pub async fn deliveries(&self, source: &str, page: &PageRequest) -> Result<Page<Delivery>, Error> {
        let paging = Paging::new(List::Deliveries, source, page)?;
        let mut conditions = Conditions::new();
        conditions.add("source = ?", source);
        conditions.add_if("number < ?", paging.after.map(|Key(number, _)| number));
        let clause = conditions.clause();
        let (last, args) = conditions.finish(paging.rows());
        let sql = format!("SELECT * FROM jangar_deliveries{clause} ORDER BY number DESC LIMIT {last}");
        let database = self.prepared().await?;
        let rows = database
            .rows("listing deliveries", TABLE, assembled(sql), args)
            .await?;
        let line = |row: &Row| Ok((Key(row.int("number")?, 0), read(row)?));
        Ok(paging.page(rows.iter().map(line).collect::<Result<_, Error>>()?))
    }
}

fn read(row: &Row) -> Result<Delivery, Error> {
    Ok(Delivery {
        source: row.text("source")?,
        delivery_id: row.text("delivery_id")?,
        provider: row.text("provider")?,
        event: row.text("event")?,
        external_id: row.text_if_any("external_id")?,
        received_at: row.time("received_at")?,
        state: WebhookState::from(row.text("state")?.as_str()),
        attempts: row.int("attempts")?,
        error: row.text_if_any("error")?,
        expires_at: row.time("expires_at")?,
    })
}
