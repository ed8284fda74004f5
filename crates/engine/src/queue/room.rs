//! Whether one more run may be handed in.
//!
//! Whoever creates a run object gets it in, and it waits beyond the last place. Whoever submits one to the control plane is told
//! before anything is created: so that a client which keeps submitting slows down.

use jangar_api::agents::agent_run::AgentRun;

use super::{
    facts::{Demand, Stands, stands},
    scope::Lane,
    usage::queue_limit,
};
use crate::{settings::LimitSettings, waiting::Full};

/// What a run waits for, if it waits for its turn. `cancels` says whether the settings let runs be cancelled.
pub fn waits_in(namespace: &str, run: &AgentRun, cancels: bool) -> Option<Lane> {
    (stands(run, false, false, cancels) == Stands::Contends).then(|| Demand::of(namespace, run).lane)
}

/// The first limit on waiting runs that leaves no room for one more in this lane.
pub fn no_room(waiting: &[Lane], lane: &Lane, limits: &LimitSettings) -> Option<Full> {
    lane.scopes().find_map(|scope| {
        let limit = queue_limit(&scope, limits)?;
        let same = waiting
            .iter()
            .filter(|other| other.scopes().any(|counted| counted == scope));
        let in_use = u32::try_from(same.count()).unwrap_or(u32::MAX);
        (in_use >= limit).then_some(Full { scope, in_use, limit })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{queue::Scope, settings::QueueLimits};

    fn lane(namespace: &str, repository: Option<&str>) -> Lane {
        Lane {
            namespace: namespace.to_owned(),
            agent: "coder".to_owned(),
            repository: repository.map(str::to_owned),
        }
    }

    fn limits(namespace: u32, repository: u32) -> LimitSettings {
        LimitSettings {
            queue: QueueLimits {
                namespace: Some(namespace),
                repository: Some(repository),
                cluster: None,
            },
            ..LimitSettings::default()
        }
    }

    #[test]
    fn the_limit_that_is_reached_is_named_and_others_do_not_count() {
        let waiting = [lane("a", Some("x/y")), lane("a", None), lane("b", Some("x/y"))];
        let full = |lane: &Lane, limits| no_room(&waiting, lane, &limits).map(|full| full.scope);
        assert_eq!(full(&lane("a", None), limits(3, 9)), None);
        assert_eq!(
            full(&lane("a", None), limits(2, 9)),
            Some(Scope::Namespace("a".to_owned()))
        );
        assert_eq!(
            full(&lane("c", Some("x/y")), limits(2, 2)),
            Some(Scope::Repository("x/y".to_owned()))
        );
        assert_eq!(full(&lane("c", Some("other")), limits(2, 2)), None);
    }

    #[test]
    fn a_run_waits_until_it_has_started_or_ended() {
        let run = |status: serde_json::Value| -> AgentRun {
            serde_json::from_value(json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
                "metadata": {"name": "r", "namespace": "a", "uid": "1"},
                "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"},
                         "implementation": {"inline": {"text": "do"}}},
                "status": status,
            }))
            .expect("a run")
        };
        let waits = |status| waits_in("a", &run(status), true).is_some();
        assert!(waits(json!(null)));
        assert!(waits(json!({"phase": "Pending"})));
        assert!(!waits(
            json!({"phase": "Running", "runtimeRef": {"type": "job", "name": "j"}})
        ));
        assert!(!waits(json!({"phase": "Failed"})));
    }
}
