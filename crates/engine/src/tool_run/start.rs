//! The Job of the next attempt: what it needs before it can be made.

use jangar_api::{
    reason::Reason,
    tools::{Tool, ToolRunStatus},
};

use super::Situation;
use crate::{
    decision::{Decision, Effect, Plan, Question, Rejection},
    job::{self, ToolJobRequest},
    life::{
        Run,
        start::{Held, Lacking, NotFound, found, held_up, lacking, reject, waits},
    },
    tool,
    waiting::Remedy,
};

/// What can be done about a run that has no Job.
enum Next {
    Unsure(Question),
    Waits(Held),
    /// It can never start as it was written.
    Wrong(Rejection),
    Starts(Vec<Effect>),
}

/// Makes the Job of the next attempt.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<ToolRunStatus> {
    match next(situation) {
        Next::Unsure(question) => Decision::look(question),
        Next::Waits(held) => waits(situation, &held),
        Next::Wrong(rejection) => reject(situation, &rejection),
        Next::Starts(effects) => Decision::Act(Plan {
            effects,
            ..Plan::nothing()
        }),
    }
}

fn next(situation: &Situation<'_>) -> Next {
    match held_up(situation) {
        Ok(None) => {}
        Ok(Some(held)) => return Next::Waits(held),
        Err(rejection) => return Next::Wrong(rejection),
    }
    let tool = match tool_of(situation) {
        Ok(tool) => tool,
        Err(NotFound::Unsure(question)) => return Next::Unsure(question),
        Err(NotFound::Lacking(what)) => {
            return match lacking(situation, what) {
                Ok(held) => Next::Waits(held),
                Err(rejection) => Next::Wrong(rejection),
            };
        }
    };
    match effects(situation, tool) {
        Ok(effects) => Next::Starts(effects),
        Err(rejection) => Next::Wrong(rejection),
    }
}

/// The Tool, if it is there and can be run. One that cannot has the same time to be mended as a missing one has to come: it may
/// have been applied together with the run.
fn tool_of<'a>(situation: &Situation<'a>) -> Result<&'a Tool, NotFound> {
    let name = situation.run.spec.tool_ref.name.trim();
    let lacks = |reason: Reason, message: String, remedy: Remedy| {
        NotFound::Lacking(Lacking {
            why: Rejection::new(reason, message),
            remedy,
            watched: true,
        })
    };
    if name.is_empty() {
        let message =
            "spec.toolRef.name is blank, and should be the name of a Tool of this namespace".to_owned();
        return Err(lacks(Reason::MissingTool, message, Remedy::Mend));
    }
    let tool = found(
        Some(&situation.observed.tool),
        Reason::MissingTool,
        "Tool",
        name,
        "spec.toolRef.name",
        Question::Tool,
    )?;
    match tool::all_told(&tool::mistakes(&tool.spec)) {
        None => Ok(tool),
        Some(wrong) => {
            let message = format!("Tool {name} cannot be run as it is written: {wrong}");
            Err(lacks(Reason::InvalidTool, message, Remedy::Mend))
        }
    }
}

fn effects(situation: &Situation<'_>, tool: &Tool) -> Result<Vec<Effect>, Rejection> {
    let spec_hash = situation.run.spec_hash();
    let request = ToolJobRequest {
        run: situation.run,
        tool,
        attempt: situation.attempt.current(),
        spec_hash: &spec_hash,
        at: situation.now,
    };
    let (job, files) = job::build_tool(&request, situation.settings)?;
    let files = files.map(|files| Effect::CreateConfigMap(Box::new(files)));
    let job = Effect::CreateJob(Box::new(job));
    Ok(files.into_iter().chain([job]).collect())
}
