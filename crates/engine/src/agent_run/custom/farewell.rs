//! A run that is deleted while its endpoint works: it stays until the endpoint was told to stop.

use jangar_api::{agents::agent_run::AgentRunStatus, phase::RunPhase, reason::Reason};

use super::{
    super::{Situation, elsewhere::leave, hold::go},
    ending,
    record::Record,
    reported_end,
    stop::{Stopping, confirmed_by, removal, stop},
};
use crate::decision::Decision;

/// The run was deleted: its endpoint is told to stop, and the run goes when it says that it has, or has had its time.
pub(in super::super) fn farewell(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let over = situation.status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    // A record that cannot be read names nobody who could be told.
    let Some(record) = Record::of(situation.status).ok().flatten() else {
        return go(situation, None);
    };
    if over {
        return leave(situation, removal(situation), || {
            format!(
                "the run was deleted, and {} could not be told to stop: it may still be working",
                record.name
            )
        });
    }
    if let Some(end) = reported_end(situation, &record) {
        return ending::conclude(situation, &record, end);
    }
    let going = match stop(situation, &record) {
        Stopping::Never => return go(situation, None),
        Stopping::Going(going) => *going,
    };
    let deadline = confirmed_by(situation, &record);
    if situation.now >= deadline {
        let message = format!(
            "the run was deleted, and {} did not confirm that it has stopped: it may still be working",
            record.name
        );
        return go(
            situation,
            Some(situation.warning(Reason::CancelTimedOut, message)),
        );
    }
    going.plan(situation.next_status(), deadline)
}
