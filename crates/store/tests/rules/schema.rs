//! The schema and its ledger.

use jangar_store::{Error, Namespaces, PageRequest, RunFilter, Store};

use super::{Place, now, object, record};

async fn refusal(place: &Place, variables: &[(&str, &str)]) -> String {
    let error = Store::connect(place.config(variables))
        .await
        .expect_err("the ledger does not fit");
    assert!(matches!(error, Error::Ledger { .. }), "{error}");
    error.to_string()
}

pub(crate) async fn of_several_that_start_at_once_one_prepares_and_all_come_up(place: Place) {
    let starts: Vec<_> = (0..6)
        .map(|_| tokio::spawn(Store::connect(place.config(&[]))))
        .collect();
    for start in starts {
        let store = start.await.unwrap().expect("each comes up");
        assert_eq!(store.ready().await.unwrap().schema, 4);
        store.close().await;
    }
    assert_eq!(
        place.meddle("SELECT COUNT(*) FROM jangar_migrations").await,
        Some(4)
    );
}

pub(crate) async fn a_changed_entry_of_the_ledger_stops_before_anything_is_touched(place: Place) {
    place.store().await.close().await;
    place
        .meddle("UPDATE jangar_migrations SET checksum = 'bent'")
        .await;
    let said = refusal(&place, &[]).await;
    assert!(
        said.contains("step 1 (history)") && said.contains("bent there"),
        "{said}"
    );
    assert!(
        refusal(&place, &[("JANGAR_MIGRATIONS", "skip")])
            .await
            .contains("step 1 (history)")
    );
    assert_eq!(
        place.meddle("SELECT COUNT(*) FROM jangar_migrations").await,
        Some(4)
    );
}

pub(crate) async fn an_entry_of_a_later_version_is_named(place: Place) {
    place.store().await.close().await;
    place
        .meddle(
            "INSERT INTO jangar_migrations (number, name, checksum, applied_at) VALUES (9, 'wings', 'x', 0)",
        )
        .await;
    let said = refusal(&place, &[]).await;
    assert!(said.contains("step 9 (wings)"), "{said}");
    // Whoever says skip vouches for it: an old replica during a rolling upgrade.
    let store = Store::connect(place.config(&[("JANGAR_MIGRATIONS", "skip")]))
        .await
        .unwrap();
    store.record(&record(&object("team", 1)), now()).await.unwrap();
}

pub(crate) async fn a_later_version_may_say_that_this_one_can_go_on(place: Place) {
    place.store().await.close().await;
    place
        .meddle(
            "INSERT INTO jangar_migrations (number, name, checksum, applied_at, usable_by) VALUES (9, 'wings', 'x', 0, 4)",
        )
        .await;
    let store = place.store().await;
    store.record(&record(&object("team", 1)), now()).await.unwrap();
    store.close().await;
    place
        .meddle(
            "INSERT INTO jangar_migrations (number, name, checksum, applied_at, usable_by) VALUES (10, 'tail', 'x', 0, 5)",
        )
        .await;
    let said = refusal(&place, &[]).await;
    assert!(said.contains("step 10 (tail)"), "{said}");
}

/// How the words were kept before step 3, with what keeps them up to date.
fn words_of_step_one() -> &'static str {
    let script = include_str!("../../migrations/sqlite/0001_history.sql");
    let (_, rest) = script.split_once("-- `ascii` takes").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("-- Apart from the run").unwrap().0
}

pub(crate) async fn a_schema_of_the_version_before_is_brought_up_to_date(place: Place) {
    let store = place.store().await;
    store.record(&record(&object("team", 1)), now()).await.unwrap();
    store.close().await;
    let words: &[&str] = if place.url.starts_with("sqlite") {
        &[
            "DROP TRIGGER jangar_run_words_added",
            "DROP TRIGGER jangar_run_words_changing",
            "DROP TRIGGER jangar_run_words_changed",
            "DROP TRIGGER jangar_run_words_removed",
            "DROP TABLE jangar_run_words",
            "DROP VIEW jangar_run_marks",
            words_of_step_one(),
        ]
    } else {
        &[
            "DROP TABLE jangar_piece_words",
            "DROP TABLE jangar_pieces",
            "DROP FUNCTION jangar_put_in_piece CASCADE",
            "DROP FUNCTION jangar_words_in_piece",
            "DROP INDEX jangar_runs_by_mark",
            "DROP FUNCTION jangar_run_marks",
        ]
    };
    let lists = [
        "DROP INDEX jangar_runs_of_kind",
        "DROP INDEX jangar_runs_of_subject",
        "DROP INDEX jangar_runs_of_subject_by_phase",
        "DROP INDEX jangar_runs_listed_by_subject_and_phase",
        "DROP INDEX jangar_runs_listed",
        "DROP INDEX jangar_runs_listed_by_phase",
        "DROP INDEX jangar_runs_listed_by_subject",
        "ALTER TABLE jangar_migrations DROP COLUMN usable_by",
        "DELETE FROM jangar_migrations WHERE number >= 2",
    ];
    for back in words.iter().chain(&lists) {
        place.meddle(back).await;
    }
    let store = place.store().await;
    assert_eq!(store.ready().await.unwrap().schema, 4);
    // What was there before is found by what is new.
    let filter = RunFilter {
        text: Some("run".to_owned()),
        namespaces: Namespaces::Only(vec!["team".to_owned()]),
        ..RunFilter::default()
    };
    let found = store.runs(&filter, &PageRequest::default()).await.unwrap();
    assert_eq!(found.items.len(), 1);
    store.close().await;
    place.store().await;
}

pub(crate) async fn skip_says_what_is_missing_and_makes_nothing(place: Place) {
    let said = refusal(&place, &[("JANGAR_MIGRATIONS", "skip")]).await;
    assert!(
        said.contains("lacks step 1 (history)") && said.contains("JANGAR_MIGRATIONS=auto"),
        "{said}"
    );
    // Had it made anything, this would not start from the beginning.
    place.store().await;
}

pub(crate) async fn skip_takes_a_schema_that_is_there(place: Place) {
    place.store().await.close().await;
    let store = Store::connect(place.config(&[("JANGAR_MIGRATIONS", "skip")]))
        .await
        .unwrap();
    assert_eq!(store.ready().await.unwrap().schema, 4);
}

pub(crate) async fn a_store_that_is_closed_says_so(place: Place) {
    let store = place.store().await;
    store.close().await;
    let error = store.run("x").await.unwrap_err();
    assert!(error.is_down(), "{error}");
}
