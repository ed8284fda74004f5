//! The variables of the queue: their rows of the table.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    limits::names,
    mistakes::{Wrong, shown},
    parse::Draft,
    reader::{Reader, number_map},
    table::{Unset, Variable},
};

/// More than this many runs at once, or in a queue, are taken for a slip: no cluster holds them.
const RUNS_MAX: u32 = 1_000_000;
/// A day. A longer window would have to remember more admissions than are worth it.
const WINDOW_MAX_SECONDS: u32 = 86_400;

pub(super) const LIMITS: &[Variable] = &[
    Variable {
        name: names::CONCURRENCY_AGENT,
        unset: Unset::Is("5"),
        meaning: "How many runs of one Agent may be under way at once.",
        reader: at_least_one(|draft, number| draft.settings.limits.concurrency.agent = number),
    },
    Variable {
        name: names::CONCURRENCY_NAMESPACE,
        unset: Unset::Is("10"),
        meaning: "How many runs of one namespace may be under way at once.",
        reader: at_least_one(|draft, number| draft.settings.limits.concurrency.namespace = number),
    },
    Variable {
        name: names::CONCURRENCY_CLUSTER,
        unset: Unset::Is("100"),
        meaning: "How many runs may be under way at once in all namespaces that are looked after.",
        reader: at_least_one(|draft, number| draft.settings.limits.concurrency.cluster = number),
    },
    Variable {
        name: names::REPO_ENABLED,
        unset: Unset::Is("false"),
        meaning: "Whether the runs of one repository are limited as well.",
        reader: Reader::Switch(|draft, on| draft.repositories.enabled = on),
    },
    Variable {
        name: names::REPO_DEFAULT,
        unset: Unset::Is("0"),
        meaning: "How many runs of one repository may be under way at once; 0 is no limit.",
        reader: or_unlimited(|draft, limit| draft.repositories.limits.default = limit),
    },
    Variable {
        name: names::REPO_OVERRIDES,
        unset: Unset::Means("none"),
        meaning: "The same for single repositories, in place of the default; upper and lower case are the same.",
        reader: Reader::Special {
            takes: "a JSON object of repositories and whole numbers from 0 to 1000000, such as `{\"owner/name\": 2}`; 0 is no \
                    limit",
            read: read_overrides,
        },
    },
    Variable {
        name: names::QUEUE_NAMESPACE,
        unset: Unset::Is("200"),
        meaning: "How many runs of one namespace may wait before more are told that the queue is full; 0 is no limit.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.queue.namespace = limit),
    },
    Variable {
        name: names::QUEUE_REPO,
        unset: Unset::Is("50"),
        meaning: "The same for the runs of one repository.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.queue.repository = limit),
    },
    Variable {
        name: names::QUEUE_CLUSTER,
        unset: Unset::Is("1000"),
        meaning: "The same for all namespaces that are looked after.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.queue.cluster = limit),
    },
    Variable {
        name: names::RATE_WINDOW,
        unset: Unset::Is("60"),
        meaning: "The length of the window in which starts are counted, in seconds.",
        reader: Reader::Number {
            from: 1,
            to: WINDOW_MAX_SECONDS,
            or_zero: false,
            set: |draft, number| draft.settings.limits.rate.window = super::table::seconds(number),
        },
    },
    Variable {
        name: names::RATE_NAMESPACE,
        unset: Unset::Is("120"),
        meaning: "How many runs of one namespace may start within a window; 0 is no limit.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.rate.namespace = limit),
    },
    Variable {
        name: names::RATE_REPO,
        unset: Unset::Is("30"),
        meaning: "The same for the runs of one repository.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.rate.repository = limit),
    },
    Variable {
        name: names::RATE_CLUSTER,
        unset: Unset::Is("600"),
        meaning: "The same for all namespaces that are looked after.",
        reader: or_unlimited(|draft, limit| draft.settings.limits.rate.cluster = limit),
    },
];

/// A limit that nothing could start under is none that anybody wants.
const fn at_least_one(set: fn(&mut Draft, u32)) -> Reader {
    Reader::Number {
        from: 1,
        to: RUNS_MAX,
        or_zero: false,
        set,
    }
}

/// A number of which zero means that there is no limit.
const fn or_unlimited(set: fn(&mut Draft, Option<u32>)) -> Reader {
    Reader::Limit { to: RUNS_MAX, set }
}

fn read_overrides(draft: &mut Draft, text: &str) -> Result<(), Wrong> {
    let mut overrides = BTreeMap::new();
    for (repository, limit) in number_map(text)? {
        let field = |error: &str| Wrong::Field {
            path: shown(&repository),
            error: error.to_owned(),
        };
        let name = repository.trim().to_lowercase();
        if name.is_empty() {
            return Err(field("the name of a repository is blank"));
        }
        let limit = match &limit {
            Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        let Some(limit) = limit.filter(|limit| *limit <= RUNS_MAX) else {
            return Err(field("this is not a whole number in range"));
        };
        if overrides.insert(name, (limit > 0).then_some(limit)).is_some() {
            return Err(field("the repository is named twice"));
        }
    }
    draft.repositories.limits.overrides = overrides;
    Ok(())
}
