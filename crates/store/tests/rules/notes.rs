//! What is noted beside runs: the audit log, keys, deliveries, decisions and the ends of logs.

use jangar_api::phase::WebhookState;
use jangar_store::{
    AuditEntry, AuditFilter, AuditOutcome, Delivery, IdempotencyKey, Namespaces, NewLogTail, PageRequest,
    Pruned, Remembered, RunKind, Store,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Place, now, object, record, time};

fn page(limit: u32, cursor: Option<String>) -> PageRequest {
    PageRequest { limit, cursor }
}

pub(crate) fn entry(number: u128, detail: Value) -> AuditEntry {
    AuditEntry {
        id: Uuid::from_u128(number),
        at: now(),
        actor: "ada".to_owned(),
        actor_groups: vec!["web".to_owned()],
        source: "192.0.2.7".to_owned(),
        action: "agent_run.created".to_owned(),
        kind: "AgentRun".to_owned(),
        namespace: "team".to_owned(),
        name: format!("run-{number}"),
        uid: None,
        outcome: AuditOutcome::Allowed,
        detail,
    }
}

pub(crate) fn tail(uid: &str, attempt: i64, text: &str) -> NewLogTail {
    NewLogTail {
        run_uid: uid.to_owned(),
        step: String::new(),
        attempt,
        pod: "pod".to_owned(),
        container: "agent".to_owned(),
        text: text.to_owned(),
        cut: false,
        total_bytes: Some(77),
        taken_at: now(),
        expires_at: time("2026-04-01T00:00:00Z"),
    }
}

pub(crate) async fn the_audit_log_is_paged_and_says_each_thing_once(place: Place) {
    let store = place.store().await;
    for number in 1..=5 {
        let entry = entry(number, json!({"number": number.to_string()}));
        store.audit(&entry).await.unwrap();
        store.audit(&entry).await.unwrap();
    }
    let denied = AuditEntry {
        outcome: AuditOutcome::Denied,
        actor: "eve".to_owned(),
        namespace: "other".to_owned(),
        ..entry(6, Value::Null)
    };
    store.audit(&denied).await.unwrap();

    let first = store
        .audit_entries(&AuditFilter::default(), &page(4, None))
        .await
        .unwrap();
    assert_eq!(first.items[0], denied);
    let rest = store
        .audit_entries(&AuditFilter::default(), &page(4, first.next))
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next), (2, None));
    assert_eq!(rest.items[1], entry(1, json!({"number": "1"})));
    let count = async |filter: AuditFilter| {
        store
            .audit_entries(&filter, &page(50, None))
            .await
            .unwrap()
            .items
            .len()
    };
    let by = |actor: &str| AuditFilter {
        actor: Some(actor.to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!((count(by("eve")).await, count(by("ada")).await), (1, 5));
    let seen = Namespaces::Only(vec!["team".to_owned()]);
    assert_eq!(
        count(AuditFilter {
            namespaces: seen,
            ..AuditFilter::default()
        })
        .await,
        5
    );
    let later = AuditFilter {
        since: Some(time("2026-03-03T00:00:00Z")),
        ..AuditFilter::default()
    };
    assert_eq!(count(later).await, 0);
}

pub(crate) async fn entries_of_the_audit_log_go_when_they_are_old(place: Place) {
    let store = place.store().await;
    store.audit(&entry(1, Value::Null)).await.unwrap();
    assert_eq!(store.prune(now(), None).await.unwrap(), Pruned::default());
    assert_eq!(
        store.prune(now(), Some(now())).await.unwrap().audit,
        0,
        "not older than that"
    );
    assert_eq!(
        store
            .prune(now(), Some(time("2026-03-05T00:00:00Z")))
            .await
            .unwrap()
            .audit,
        1
    );
}

pub(crate) async fn a_key_is_remembered_until_its_time_is_over(place: Place) {
    let store = place.store().await;
    let key = IdempotencyKey {
        kind: RunKind::AgentRun,
        namespace: "team".to_owned(),
        subject: "coder".to_owned(),
        key: "k-1".to_owned(),
        digest: "d-1".to_owned(),
        run_uid: "u-1".to_owned(),
        run_name: "run-1".to_owned(),
        created_at: now(),
        expires_at: time("2026-03-03T00:00:00Z"),
    };
    let again = IdempotencyKey {
        run_uid: "u-2".to_owned(),
        ..key.clone()
    };
    assert_eq!(store.remember_key(&key).await.unwrap(), Remembered::New);
    assert_eq!(
        store.remember_key(&again).await.unwrap(),
        Remembered::Before(key.clone())
    );
    let known = async |at| {
        store
            .key(RunKind::AgentRun, "team", "coder", "k-1", at)
            .await
            .unwrap()
    };
    assert_eq!(known(now()).await, Some(key.clone()));
    assert_eq!(known(key.expires_at).await, None);
    assert_eq!(
        store
            .key(RunKind::ToolRun, "team", "coder", "k-1", now())
            .await
            .unwrap(),
        None
    );
    let late = IdempotencyKey {
        created_at: key.expires_at,
        ..again
    };
    assert_eq!(store.remember_key(&late).await.unwrap(), Remembered::New);
    assert_eq!(store.prune(key.expires_at, None).await.unwrap().keys, 1);
}

pub(crate) async fn a_delivery_that_comes_again_is_recognised(place: Place) {
    let store = place.store().await;
    let delivery = |id: &str, state| Delivery {
        source: "team/issues".to_owned(),
        delivery_id: id.to_owned(),
        provider: "github".to_owned(),
        event: "issues".to_owned(),
        external_id: Some("owner/repo#12".to_owned()),
        received_at: now(),
        state,
        attempts: 1,
        error: None,
        expires_at: time("2026-03-03T00:00:00Z"),
    };
    assert!(
        store
            .record_delivery(&delivery("d-1", WebhookState::Queued))
            .await
            .unwrap()
    );
    assert!(
        store
            .record_delivery(&delivery("d-2", WebhookState::Queued))
            .await
            .unwrap()
    );
    assert!(
        !store
            .record_delivery(&delivery("d-1", WebhookState::Synced))
            .await
            .unwrap()
    );
    let first = store.deliveries("team/issues", &page(1, None)).await.unwrap();
    assert_eq!(first.items, [delivery("d-2", WebhookState::Queued)]);
    let second = store
        .deliveries("team/issues", &page(1, first.next))
        .await
        .unwrap();
    assert_eq!(second.items, [delivery("d-1", WebhookState::Synced)]);
    assert!(
        store
            .deliveries("other/issues", &page(1, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(
        store
            .prune(time("2026-03-03T00:00:00Z"), None)
            .await
            .unwrap()
            .deliveries,
        2
    );
}

pub(crate) async fn only_the_end_of_a_log_is_kept_and_only_for_its_time(place: Place) {
    let store = Store::connect(place.config(&[("JANGAR_DB_LOG_TAIL_BYTES", "10")]))
        .await
        .unwrap();
    store
        .record_log(&tail("u-1", 1, "first\nsecond\n"))
        .await
        .unwrap();
    store.record_log(&tail("u-1", 2, "short\n")).await.unwrap();
    let last = store
        .log_tail("u-1", "", None)
        .await
        .unwrap()
        .expect("it was kept");
    assert_eq!(
        (last.text.as_str(), last.info.cut, last.info.attempt),
        ("short\n", false, 2)
    );
    let first = store
        .log_tail("u-1", "", Some(1))
        .await
        .unwrap()
        .expect("it was kept");
    assert_eq!((first.text.as_str(), first.info.cut), ("second\n", true));
    // What was read later counts, and what was read earlier does not come back.
    let earlier = NewLogTail {
        taken_at: time("2026-03-01T00:00:00Z"),
        ..tail("u-1", 2, "old\n")
    };
    store.record_log(&earlier).await.unwrap();
    assert_eq!(
        store.log_tail("u-1", "", None).await.unwrap().expect("kept").text,
        "short\n"
    );
    assert_eq!(store.log_tails("u-1").await.unwrap().len(), 2);
    assert_eq!(
        store
            .prune(time("2026-04-01T00:00:00Z"), None)
            .await
            .unwrap()
            .log_tails,
        2
    );
    assert_eq!(store.log_tail("u-1", "", None).await.unwrap(), None);
}

pub(crate) async fn decisions_are_listed_across_runs(place: Place) {
    let store = place.store().await;
    for number in 1..=3 {
        let mut object = object("team", number);
        let given = |step: &str| json!({"step": step, "decision": "Approved", "by": "ada", "digest": "d"});
        object["status"]["approvals"] = json!([given("plan"), given("ship")]);
        store.record(&record(&object), now()).await.unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let given = store.approvals(&Namespaces::All, &page(2, cursor)).await.unwrap();
        seen.extend(
            given
                .items
                .into_iter()
                .map(|given| format!("{} {}", given.run, given.approval.step)),
        );
        cursor = given.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(
        seen,
        [
            "run-3 plan",
            "run-3 ship",
            "run-2 plan",
            "run-2 ship",
            "run-1 plan",
            "run-1 ship"
        ]
    );
    let nobody = Namespaces::Only(Vec::new());
    assert!(
        store
            .approvals(&nobody, &page(2, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
