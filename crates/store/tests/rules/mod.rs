//! The rules of the history, written once and played on both databases.

pub(crate) mod notes;
pub(crate) mod questions;
pub(crate) mod runs;
pub(crate) mod schema;

use std::any::Any;

use jangar_store::{Config, RunRecord, Store};
use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, SqliteConnection};

/// A database of a test's own, which goes with this value.
pub(crate) struct Place {
    pub(crate) url: String,
    /// Everything that the database holds, as bytes.
    pub(crate) dump: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    pub(crate) _keep: Box<dyn Any + Send + Sync>,
}

impl Place {
    pub(crate) fn config(&self, variables: &[(&str, &str)]) -> Config {
        config(&self.url, variables)
    }

    pub(crate) async fn store(&self) -> Store {
        Store::connect(self.config(&[])).await.unwrap()
    }

    /// Somebody else does something to the database, and is told one number if it asks for one.
    pub(crate) async fn meddle(&self, sql: &'static str) -> Option<i64> {
        if self.url.starts_with("sqlite") {
            let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
            let found = sqlx::query_scalar::<_, i64>(sql)
                .fetch_optional(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
            return found;
        }
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        sqlx::query_scalar::<_, i64>(sql)
            .fetch_optional(&mut connection)
            .await
            .unwrap()
    }
}

impl Place {
    /// Lets Postgres begin a piece of the list, in which it looks words up, after three runs instead of thousands.
    pub(crate) async fn divide_into_pieces_of_three(&self) {
        if self.url.starts_with("postgres") {
            self.meddle(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jangar.piece_runs = 3', current_database()); END $$",
            )
            .await;
        }
    }
}

pub(crate) fn config(url: &str, variables: &[(&str, &str)]) -> Config {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Config::new(url, lookup).unwrap()
}

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Any time will do where it is only stored.
pub(crate) fn now() -> Timestamp {
    time("2026-03-02T00:00:00Z")
}

/// An AgentRun that has failed, the `number`th of its namespace, each a second after the one before.
pub(crate) fn object(namespace: &str, number: i64) -> Value {
    let created = Timestamp::from_second(1_772_000_000 + number)
        .unwrap()
        .to_string();
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": {
            "name": format!("run-{number}"), "namespace": namespace, "uid": format!("{namespace}-{number}"),
            "resourceVersion": "100", "creationTimestamp": created, "labels": {"team": "web"},
        },
        "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}, "priority": 1},
        "status": {
            "phase": "Failed", "startedAt": created, "finishedAt": created,
            "conditions": [{
                "type": "Failed", "status": "True", "reason": "AgentFailed", "message": "exit code 2",
                "lastTransitionTime": created,
            }],
        },
    })
}

pub(crate) fn record(object: &Value) -> RunRecord {
    RunRecord::of(object, "here").unwrap()
}

/// Writes runs of a namespace, as many as asked for.
pub(crate) async fn write(store: &Store, namespace: &str, numbers: std::ops::Range<i64>) {
    for number in numbers {
        store
            .record(&record(&object(namespace, number)), now())
            .await
            .unwrap();
    }
}

/// Makes a test of each rule. `$fresh` makes a database that is empty.
macro_rules! play {
    ($fresh:ident: $($module:ident :: $rule:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $rule() {
                rules::$module::$rule($fresh().await).await;
            }
        )+
    };
}

/// Makes a test of all rules.
macro_rules! play_all {
    ($fresh:ident) => {
        rules::play! { $fresh:
            runs::a_run_is_read_back_with_all_that_stands_beside_it,
            runs::what_a_run_waited_for_is_among_its_transitions,
            runs::an_older_state_never_takes_the_place_of_a_newer_one,
            runs::many_who_write_one_run_at_once_leave_one,
            runs::several_runs_are_written_together_or_not_at_all,
            runs::two_runs_with_one_place_both_have_one,
            runs::a_name_that_was_used_again_means_the_latest,
            runs::pages_have_every_run_once_while_others_are_added,
            runs::a_cursor_of_another_filter_is_refused,
            runs::filters_take_what_they_say_and_nothing_else,
            runs::bounds_in_time_take_the_first_and_leave_the_last,
            runs::a_search_finds_words_and_their_beginnings,
            runs::runs_are_counted_by_kind_and_phase,
            runs::whoever_sees_no_namespace_sees_nothing,
            runs::no_secret_reaches_the_database,
            runs::odd_characters_come_back,
            questions::every_set_of_filters_takes_what_it_says,
            questions::every_set_of_filters_takes_what_it_says_from_many_pieces,
            questions::rare_words_are_found_among_many_runs,
            schema::of_several_that_start_at_once_one_prepares_and_all_come_up,
            schema::a_changed_entry_of_the_ledger_stops_before_anything_is_touched,
            schema::an_entry_of_a_later_version_is_named,
            schema::a_later_version_may_say_that_this_one_can_go_on,
            schema::a_schema_of_the_version_before_is_brought_up_to_date,
            schema::skip_says_what_is_missing_and_makes_nothing,
            schema::skip_takes_a_schema_that_is_there,
            schema::a_store_that_is_closed_says_so,
            notes::the_audit_log_is_paged_and_says_each_thing_once,
            notes::a_key_is_remembered_until_its_time_is_over,
            notes::a_delivery_that_comes_again_is_recognised,
            notes::only_the_end_of_a_log_is_kept_and_only_for_its_time,
            notes::decisions_are_listed_across_runs,
            notes::entries_of_the_audit_log_go_when_they_are_old,
        }
    };
}

pub(crate) use {play, play_all};
