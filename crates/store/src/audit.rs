//! Who changed what through the control plane, from where, and how it went.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    Error, Namespaces, Page, PageRequest, Store,
    conditions::Conditions,
    cursor::{Key, List, Paging},
    database::{Row, args, assembled},
    redact::withhold,
};

const TABLE: &str = "jangar_audit";
/// Details tell what was asked for; a whole object is not among them.
const MAX_DETAIL: usize = 16 << 10;

/// How what was asked for went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AuditOutcome {
    /// It was done.
    Allowed,
    /// The caller may not do that.
    Denied,
    /// The caller may, and it failed.
    Failed,
}

impl AuditOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "Allowed",
            Self::Denied => "Denied",
            Self::Failed => "Failed",
        }
    }

    fn read(row: &Row) -> Result<Self, Error> {
        let text = row.text("outcome")?;
        let all = [Self::Allowed, Self::Denied, Self::Failed];
        let found = all.into_iter().find(|outcome| outcome.as_str() == text);
        found.ok_or_else(|| row.unreadable("outcome", format!("{text:?} is no outcome")))
    }
}

/// One thing that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Made by the caller, so that writing the same entry twice leaves one.
    #[serde(serialize_with = "as_text")]
    pub id: Uuid,
    pub at: Timestamp,
    /// Who it was, as the API server knows them.
    pub actor: String,
    pub actor_groups: Vec<String>,
    /// The address they came from.
    pub source: String,
    /// For example `agent_run.created`.
    pub action: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    pub outcome: AuditOutcome,
    /// More about it. Secrets are left out when it is written, and what is too long.
    pub detail: Value,
}

fn as_text<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Which entries are wanted. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub namespaces: Namespaces,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Store {
    /// Notes what somebody asked for.
    pub async fn audit(&self, entry: &AuditEntry) -> Result<(), Error> {
        let sql = "INSERT INTO jangar_audit \
                   (id, at, actor, actor_groups, source, action, kind, namespace, name, uid, outcome, detail) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING";
        let args = args![
            entry.id.to_string(),
            entry.at,
            &entry.actor,
            json!(entry.actor_groups).to_string(),
            &entry.source,
            &entry.action,
            &entry.kind,
            &entry.namespace,
            &entry.name,
            &entry.uid,
            entry.outcome.as_str(),
            detail(&entry.detail),
        ];
        let database = self.prepared().await?;
        database
            .execute("writing the audit log", sql, args)
            .await
            .map(drop)
    }

    /// A page of the entries that the filter takes, the last written first.
    pub async fn audit_entries(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, Error> {
        let paging = Paging::new(List::Audit, &format!("{filter:?}"), page)?;
        let mut conditions = Conditions::new();
        conditions.add_namespaces("namespace", &filter.namespaces)?;
        conditions.add_if("actor = ?", filter.actor.as_deref());
        conditions.add_if("action = ?", filter.action.as_deref());
        conditions.add_if("kind = ?", filter.kind.as_deref());
        conditions.add_if("name = ?", filter.name.as_deref());
        conditions.add_if("at >= ?", filter.since);
        conditions.add_if("at < ?", filter.until);
        conditions.add_if("number < ?", paging.after.map(|Key(number, _)| number));
        let clause = conditions.clause();
        let (last, args) = conditions.finish(paging.rows());
        let sql = format!("SELECT * FROM jangar_audit{clause} ORDER BY number DESC LIMIT {last}");
        let database = self.prepared().await?;
        let rows = database
            .rows("reading the audit log", TABLE, assembled(sql), args)
            .await?;
        let line = |row: &Row| Ok((Key(row.int("number")?, 0), entry(row)?));
        Ok(paging.page(rows.iter().map(line).collect::<Result<_, Error>>()?))
    }
}

fn detail(detail: &Value) -> String {
    let mut clean = detail.clone();
    withhold(&mut clean);
    let text = clean.to_string();
    if text.len() <= MAX_DETAIL {
        return text;
    }
    json!({"cut": format!("{} bytes of detail were not kept", text.len())}).to_string()
}

fn entry(row: &Row) -> Result<AuditEntry, Error> {
    let id = row.text("id")?;
    Ok(AuditEntry {
        id: Uuid::parse_str(&id).map_err(|error| row.unreadable("id", error.to_string()))?,
        at: row.time("at")?,
        actor: row.text("actor")?,
        actor_groups: row.json("actor_groups")?,
        source: row.text("source")?,
        action: row.text("action")?,
        kind: row.text("kind")?,
        namespace: row.text("namespace")?,
        name: row.text("name")?,
        uid: row.text_if_any("uid")?,
        outcome: AuditOutcome::read(row)?,
        detail: row.json("detail")?,
    })
}
