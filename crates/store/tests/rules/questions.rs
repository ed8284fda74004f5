//! Every set of filters that a list can have gives what checking run by run gives, however the databases are asked.

use jangar_api::phase::RunPhase;
use jangar_store::{Namespaces, PageRequest, RunFilter, RunKind, RunRecord, Store};
use serde_json::{Value, json};

use super::{Place, now, object, record};

const PHASES: [&str; 3] = ["Failed", "Succeeded", "Cancelled"];
const TEAMS: [&str; 3] = ["red", "blue", "it's"];
/// As many as make a hundred pieces of the list, in which Postgres looks words up.
const MANY: i64 = 300;

/// The `number`th run: its kind, namespace, phase, agent and words follow from the number.
fn varied(number: i64) -> Value {
    let of = |values: &[&'static str], part: i64| {
        let index = usize::try_from(number / part).unwrap() % values.len();
        values[index]
    };
    let mut run = object(of(&TEAMS, 1), number);
    run["kind"] = json!(of(&["AgentRun", "AgentRun", "OrchestrationRun"], 3));
    run["spec"] = json!({
        "agentRef": {"name": of(&["coder", "o'brien \\"], 2)},
        "orchestrationRef": {"name": of(&["coder", "o'brien \\"], 2)},
        "parameters": {"goal": of(&["mend the lamp", "implementations wanted", "mend implementations"], 5)},
    });
    run["status"]["phase"] = json!(of(&PHASES, 7));
    run
}

fn matches(run: &Value, filter: &RunFilter) -> bool {
    let text = |pointer: &str| run.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let of_namespace = match &filter.namespaces {
        Namespaces::All => true,
        Namespaces::Only(names) => names.contains(&text("/metadata/namespace")),
    };
    let phase = RunPhase::from(text("/status/phase").as_str());
    let goal = text("/spec/parameters/goal");
    let has = |word: &str| goal.split(' ').any(|one| one.starts_with(word));
    of_namespace
        && filter.kind.is_none_or(|kind| kind.as_str() == text("/kind"))
        && (filter.phases.is_empty() || filter.phases.contains(&phase))
        && filter
            .subject
            .as_ref()
            .is_none_or(|subject| *subject == text("/spec/agentRef/name"))
        && filter.text.as_ref().is_none_or(|words| words.split(' ').all(has))
}

/// One filter for each way to leave something open, to give one value, several, or one that no run has.
fn filters() -> Vec<RunFilter> {
    let only = |names: &[&str]| Namespaces::Only(names.iter().map(|name| (*name).to_owned()).collect());
    let namespaces = [
        Namespaces::All,
        only(&["it's"]),
        only(&["red", "none", "blue", "red"]),
    ];
    let phases = [
        vec![],
        vec![RunPhase::Failed],
        vec![RunPhase::Cancelled, RunPhase::Running, RunPhase::Failed],
    ];
    let kinds = [None, Some(RunKind::AgentRun), Some(RunKind::ToolRun)];
    let subjects = [None, Some("o'brien \\".to_owned()), Some("nobody".to_owned())];
    let texts = [
        None,
        Some("mend".to_owned()),
        Some("implementation men".to_owned()),
    ];
    let mut all = Vec::new();
    for namespaces in &namespaces {
        for phases in &phases {
            for kind in kinds {
                for subject in &subjects {
                    all.extend(texts.iter().map(|text| RunFilter {
                        namespaces: namespaces.clone(),
                        phases: phases.clone(),
                        kind,
                        subject: subject.clone(),
                        text: text.clone(),
                        ..RunFilter::default()
                    }));
                }
            }
        }
    }
    all
}

/// All pages of a list, by UID.
async fn listed(store: &Store, filter: &RunFilter, limit: u32) -> Vec<String> {
    let mut request = PageRequest { limit, cursor: None };
    let mut found = Vec::new();
    loop {
        let page = store.runs(filter, &request).await.unwrap();
        found.extend(page.items.into_iter().map(|run| run.uid));
        match page.next {
            Some(next) => request.cursor = Some(next),
            None => return found,
        }
    }
}

async fn write_all(store: &Store, runs: &[Value]) {
    let records: Vec<RunRecord> = runs.iter().map(record).collect();
    for records in records.chunks(500) {
        store.record_all(records, now()).await.unwrap();
    }
}

pub(crate) async fn every_set_of_filters_takes_what_it_says(place: Place) {
    takes_what_it_says(place).await;
}

/// The same with as many pieces of the list as there can be: Postgres looks words up in each by itself.
pub(crate) async fn every_set_of_filters_takes_what_it_says_from_many_pieces(place: Place) {
    place.divide_into_pieces_of_three().await;
    takes_what_it_says(place).await;
}

async fn takes_what_it_says(place: Place) {
    let store = place.store().await;
    let mut runs: Vec<Value> = (1..=60).map(varied).collect();
    // As they end, which is not quite as they began.
    let late = runs.split_off(10);
    write_all(&store, &late[..30]).await;
    write_all(&store, &runs).await;
    write_all(&store, &late[30..]).await;
    runs.extend(late);
    // What changes is found by what it is, and no longer by what it was.
    for number in [3_usize, 30] {
        runs[number]["metadata"]["resourceVersion"] = json!("101");
        runs[number]["status"]["phase"] = json!("Cancelled");
        runs[number]["spec"]["agentRef"]["name"] = json!("coder");
        runs[number]["spec"]["orchestrationRef"]["name"] = json!("coder");
    }
    write_all(&store, &runs).await;
    for filter in filters() {
        let expected: Vec<&str> = runs
            .iter()
            .rev()
            .filter(|run| matches(run, &filter))
            .map(|run| run["metadata"]["uid"].as_str().unwrap())
            .collect();
        assert_eq!(listed(&store, &filter, 7).await, expected, "{filter:?}");
        let counts = store.counts(&filter).await.unwrap();
        let counted: u64 = counts.iter().map(|count| count.count).sum();
        assert_eq!(counted, u64::try_from(expected.len()).unwrap(), "{filter:?}");
    }
}

pub(crate) async fn rare_words_are_found_among_many_runs(place: Place) {
    place.divide_into_pieces_of_three().await;
    let store = place.store().await;
    let mut runs: Vec<Value> = (1..=MANY).map(|number| object("team", number)).collect();
    for number in [0_usize, 20, 40] {
        runs[number]["spec"]["parameters"] = json!({"goal": "a needle in hay"});
    }
    runs[20]["status"]["phase"] = json!("Succeeded");
    write_all(&store, &runs).await;
    let needle = |phases: &[RunPhase]| RunFilter {
        text: Some("needle".to_owned()),
        phases: phases.to_vec(),
        ..RunFilter::default()
    };
    assert_eq!(
        listed(&store, &needle(&[]), 2).await,
        ["team-41", "team-21", "team-1"]
    );
    assert_eq!(
        listed(&store, &needle(&[RunPhase::Failed]), 1).await,
        ["team-41", "team-1"]
    );
    let failed_or_not = needle(&[RunPhase::Failed, RunPhase::Succeeded]);
    assert_eq!(listed(&store, &failed_or_not, 5).await.len(), 3);
    assert!(
        listed(&store, &needle(&[RunPhase::Cancelled]), 5)
            .await
            .is_empty()
    );
}
