//! What Jangar remembers of runs that are gone: Postgres, or SQLite on a laptop.
//!
//! The cluster is where runs live; this is where they are read once they are gone from it. No decision is made from here, so a
//! database that is down stops no run: it only makes history unreadable, and lets finished runs stay in the cluster until
//! they are written.
//!
//! There is one schema of meaning for both databases: the same tables, columns and orders, numbers for times, and words
//! that the program has split, so that a search finds the same on both. What differs is in `migrations/`, in `database`, and in a
//! few words of `question`.
//!
//! Start reading at [`Store`]; then at [`RunRecord`], the only way in for a run, which leaves out secrets; then at
//! [`Store::runs`], the way out.

mod approvals;
mod audit;
mod conditions;
mod config;
mod cursor;
mod database;
mod deliveries;
mod document;
mod error;
mod keys;
mod logs;
mod migrations;
mod parts;
mod place;
mod prune;
mod question;
mod read;
mod record;
mod redact;
mod run;
mod store;
mod words;
mod write;

pub use approvals::GivenApproval;
pub use audit::{AuditEntry, AuditFilter, AuditOutcome};
pub use config::{Config, TlsMode};
pub use cursor::{Page, PageRequest};
pub use deliveries::Delivery;
pub use document::altered;
pub use error::Error;
pub use keys::{IdempotencyKey, Remembered};
pub use logs::{LogTail, LogTailInfo, NewLogTail};
pub use prune::Pruned;
pub use read::{Namespaces, PhaseCount, RunFilter};
pub use record::RunRecord;
pub use redact::{WITHHELD, withhold, withhold_text};
pub use run::{
    Approval, ArtifactReference, CancelReceipt, Run, RunKind, RunPage, RunSummary, Step, Transition,
};
pub use store::{Health, Store};
pub use write::Kept;
