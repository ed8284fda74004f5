//! Variables that belong to Jangar but not to its controllers: their presence is no reason for a warning, unless somebody who sets
//! them would wait for an effect.

use super::table::NAMESPACES;

/// What other parts of the product read, or later controllers will.
const OTHERS: &[&str] = &[
    // The pod, the image and the chart around them.
    "JANGAR_BUILD_SHA",
    "JANGAR_BUILD_TIME",
    "JANGAR_POD_UID",
    "JANGAR_SERVICE_ACCOUNT_NAME",
    "JANGAR_VERSION",
    // The control plane and its database.
    "JANGAR_CONTROL_PLANE_CACHE_CLUSTER",
    "JANGAR_CONTROL_PLANE_CACHE_ENABLED",
    "JANGAR_DB_CA_CERT",
    "JANGAR_DB_LOG_TAIL_BYTES",
    "JANGAR_DB_POOL_SIZE",
    "JANGAR_GRPC_TOKEN",
    "JANGAR_MIGRATIONS",
    "JANGAR_PRIMITIVES_NAMESPACES",
    "JANGAR_SKIP_MIGRATIONS",
    // Controllers that are not built. The chart sets this one whatever it is.
    "JANGAR_SUPPORTING_CONTROLLER_ENABLED",
    SUPPORTING_NAMESPACES,
    // The tests of this repository.
    "JANGAR_RECORD",
    "JANGAR_TEST_KUBECTL",
];

/// The namespaces of controllers that are not built. The chart sets it in any case, to those of the others unless a value says otherwise.
const SUPPORTING_NAMESPACES: &str = "JANGAR_SUPPORTING_CONTROLLER_NAMESPACES";

/// What the chart still sets for people who have a value for it, and what only controllers of schedules would read.
const IDLE: &[&str] = &["JANGAR_SCHEDULE_RUNNER_IMAGE", "JANGAR_SCHEDULE_SERVICE_ACCOUNT"];

/// What earlier versions read and no part reads any more: whoever still sets it should not wait for an effect.
const GONE: &[&str] = &[
    "JANGAR_AGENT_COMMS_SUBJECTS",
    "JANGAR_AGENT_COMMS_SUBSCRIBER_DISABLED",
    "JANGAR_BASE_URL",
    "JANGAR_CODEX_RERUN_ORCHESTRATION",
    "JANGAR_CODEX_RERUN_ORCHESTRATION_NAMESPACE",
    "JANGAR_CONTROL_PLANE_CACHE_NAMESPACES",
    "JANGAR_GRPC_PROTO_PATH",
    "JANGAR_PRIMITIVES_RECONCILER",
    "JANGAR_SYSTEM_IMPROVEMENT_ORCHESTRATION",
    "JANGAR_SYSTEM_IMPROVEMENT_ORCHESTRATION_NAMESPACE",
    // Where messages of agents came from.
    "NATS_PASSWORD",
    "NATS_URL",
    "NATS_USER",
    // What the chart gave every pod before 0.10, so that it is in many a values file.
    "NODE_ENV",
    "PORT",
];

/// Whether the variable is none of the controllers' business.
pub(super) fn is_others(name: &str) -> bool {
    OTHERS.contains(&name) || IDLE.contains(&name) || GONE.contains(&name) || is_service_link(name)
}

/// What to say of a variable that has no effect any more.
pub(super) fn gone(name: &str) -> Option<String> {
    GONE.contains(&name)
        .then(|| format!("{name} has no effect any more: remove it"))
}

/// What to say of variables that are set on purpose and that no part of this version reads.
pub(super) fn idle<'a>(text: impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
    let elsewhere = text(SUPPORTING_NAMESPACES).filter(|names| text(NAMESPACES) != Some(*names));
    let idle = IDLE.iter().copied().filter(|name| text(name).is_some());
    idle.map(|name| format!("{name} has no effect: there is no controller of schedules in this version, so remove it"))
        .chain(elsewhere.map(|names| {
            format!(
                "{SUPPORTING_NAMESPACES} is '{names}' and has no effect, because approvals and signals are looked after where \
                 orchestrations are: remove it"
            )
        }))
        .collect()
}

/// Whether Kubernetes made the variable: it gives each pod the addresses of the Services of its namespace, and one that is
/// called `jangar` becomes `JANGAR_SERVICE_HOST`, `JANGAR_PORT`, `JANGAR_PORT_8080_TCP_ADDR` and so on.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name
            .split_once("_PORT_")
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::settings::{Settings, table};

    #[test]
    fn no_variable_is_listed_twice_or_here_and_in_the_table() {
        let read: Vec<&str> = table::variables().map(|variable| variable.name).collect();
        let all: Vec<&str> = OTHERS
            .iter()
            .chain(IDLE)
            .chain(GONE)
            .copied()
            .chain(read)
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for name in all {
            let known = ["JANGAR_", "NATS_", "TEMPORAL_", "NODE_ENV", "PORT"];
            assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
    }

    #[test]
    fn what_has_no_effect_any_more_is_told_and_not_taken_for_a_slip() {
        let set = [
            ("JANGAR_AGENT_COMMS_SUBJECTS", "workflow.>"),
            ("NATS_URL", "nats://nats"),
        ];
        let parsed = Settings::from_vars(set.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .expect("it is no mistake");
        assert_eq!(
            parsed.warnings,
            [
                "JANGAR_AGENT_COMMS_SUBJECTS has no effect any more: remove it",
                "NATS_URL has no effect any more: remove it"
            ]
        );
        assert!(parsed.unknown.is_empty());
    }

    #[test]
    fn what_no_controller_reads_yet_is_told_unless_it_says_what_holds_anyway() {
        let read = |set: &[(&str, &str)]| {
            let owned = set
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Settings::from_vars(owned).expect("it is no mistake")
        };
        let parsed = read(&[(NAMESPACES, "a,b"), (SUPPORTING_NAMESPACES, "a,b")]);
        assert_eq!(parsed.warnings, Vec::<String>::new());
        let parsed = read(&[
            (NAMESPACES, "a,b"),
            (SUPPORTING_NAMESPACES, "b"),
            ("JANGAR_SCHEDULE_RUNNER_IMAGE", "localhost/schedule"),
            ("JANGAR_SCHEDULE_SERVICE_ACCOUNT", "schedule"),
        ]);
        let told = [IDLE, &[SUPPORTING_NAMESPACES]].concat();
        assert_eq!(parsed.warnings.len(), told.len(), "{:?}", parsed.warnings);
        for (warning, name) in parsed.warnings.iter().zip(told) {
            assert!(warning.starts_with(name), "{warning}");
        }
        assert!(parsed.unknown.is_empty());
    }

    #[test]
    fn what_kubernetes_tells_of_services_is_not_taken_for_a_setting() {
        for name in [
            "JANGAR_SERVICE_HOST",
            "JANGAR_SERVICE_PORT",
            "JANGAR_SERVICE_PORT_HTTP",
            "JANGAR_PORT",
            "JANGAR_PORT_8080_TCP",
            "JANGAR_GRPC_PORT_50051_TCP_ADDR",
        ] {
            assert!(is_others(name), "{name}");
        }
        for name in [
            "JANGAR_PORTS",
            "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNTS",
            "JANGAR_PORT_NAME",
        ] {
            assert!(!is_others(name), "{name}");
        }
    }
}
