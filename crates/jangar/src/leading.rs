//! What the controllers do, told to those who ask whether this program is ready.

use jangar_controllers::State;
use tokio::{sync::watch, task::JoinHandle};

use crate::readiness::{Part, Readiness};

/// Whether a process that waits for another one to give up the lease counts as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standby {
    /// It does all it should: otherwise two replicas would never both be ready, and no rollout would end.
    Ready,
    /// There is nobody else who does the work.
    NotReady,
}

/// Keeps `readiness` up to date until the controllers have ended.
pub(crate) fn follow(
    mut state: watch::Receiver<State>,
    readiness: Readiness,
    standby: Standby,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            match missing(&state.borrow_and_update(), standby) {
                Some(why) => readiness.missing(Part::Controllers, why),
                None => readiness.there(Part::Controllers),
            }
            if state.changed().await.is_err() {
                readiness.missing(Part::Controllers, STOPPED);
                return;
            }
        }
    })
}

/// Waits until the controllers have ended, by themselves or because they were told to.
pub(crate) async fn ended(mut state: watch::Receiver<State>) {
    // An error means that they are gone, which is an end as well.
    let _ = state.wait_for(|state| *state == State::Stopped).await;
}

const STOPPED: &str = "the controllers have stopped";

fn missing(state: &State, standby: Standby) -> Option<String> {
    match (state, standby) {
        (State::Canary { unplannable }, _) if !unplannable.is_empty() => Some(format!(
            "this canary cannot plan what the leader has accepted: {}",
            unplannable.join("; ")
        )),
        (State::Surveying, _) => {
            Some("this canary has not looked at everything yet, so that it has no verdict".to_owned())
        }
        (State::Leading, _) | (State::Standby | State::Canary { .. }, Standby::Ready) => None,
        (State::Standby | State::Canary { .. }, Standby::NotReady) => Some(
            "the controllers do not lead yet: another process holds their Lease, or they are about to begin"
                .to_owned(),
        ),
        (State::Waiting { unserved }, _) if unserved.is_empty() => {
            Some("the controllers are about to look which kinds are served".to_owned())
        }
        (State::Waiting { unserved }, _) => {
            let kinds: Vec<String> = unserved.iter().map(ToString::to_string).collect();
            Some(format!("kinds cannot be listed: {}", kinds.join("; ")))
        }
        (State::Stopped, _) => Some(STOPPED.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use jangar_controllers::Unserved;

    use super::*;

    #[test]
    fn what_is_missing_is_said_in_words() {
        let unserved = vec![Unserved {
            kind: "agentruns.agents.proompteng.ai".to_owned(),
            reason: "not known".to_owned(),
        }];
        for (state, standby, expected) in [
            (State::Leading, Standby::NotReady, None),
            (State::Standby, Standby::Ready, None),
            (State::Standby, Standby::NotReady, Some("do not lead yet")),
            (
                State::Waiting { unserved: Vec::new() },
                Standby::Ready,
                Some("about to look"),
            ),
            (
                State::Waiting { unserved },
                Standby::Ready,
                Some("agentruns.agents.proompteng.ai: not known"),
            ),
            (
                State::Canary {
                    unplannable: Vec::new(),
                },
                Standby::Ready,
                None,
            ),
            (
                State::Canary {
                    unplannable: vec!["agents/a: spec.x: unknown".to_owned()],
                },
                Standby::Ready,
                Some("accepted: agents/a: spec.x: unknown"),
            ),
            (State::Surveying, Standby::Ready, Some("has no verdict")),
            (State::Stopped, Standby::Ready, Some("stopped")),
        ] {
            let found = missing(&state, standby);
            match expected {
                None => assert_eq!(found, None, "{state:?}"),
                Some(expected) => assert!(
                    found.as_deref().is_some_and(|found| found.contains(expected)),
                    "{state:?}: {found:?}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn controllers_that_are_gone_are_not_ready_and_have_ended() {
        let readiness = Readiness::new([]);
        let (sender, state) = watch::channel(State::Leading);
        let following = follow(state.clone(), readiness.clone(), Standby::NotReady);
        drop(sender);
        ended(state).await;
        following.await.unwrap();
        assert_eq!(readiness.sentences(), [STOPPED]);
    }
}
