//! The Job of the next attempt: what it needs before it can be made.

use std::collections::BTreeSet;

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus, RuntimeType},
    labels,
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    Situation,
    admission::{self, Admission},
    references::{self, Resolved, Unresolved},
    spec_hash,
    stamp::Stamp,
    steps::{self, Earlier},
    task::{self, Task},
    token, version_control,
};
pub(super) use crate::life::start::{fail, reject, waiting_since};
use crate::{
    decision::{Decision, Effect, KeyHolder, NewJob, NewToken, Plan, Question, Rejection, TokenSight},
    job::{self, BuiltJob, JobRequest, Needs, Place, StepOfRun},
    life::start::{Held, held_up, lacking, waits},
    vcs::{Resolution, TokenStamp, VcsStamp},
    waiting::{Waiting, limit_status},
};

/// What can be done about a run that has not started.
pub(super) enum Next {
    Unsure(BTreeSet<Question>),
    Waits(Held),
    /// It has everything else, and waits for its turn.
    Queues {
        waiting: Box<Waiting>,
        /// The repository of which it would take a slot.
        repository: Option<String>,
        /// Why it will start without version control, if it will. That is recorded, so that it waits for it only once.
        without: Option<Rejection>,
    },
    /// It can never start as it was written.
    Wrong(Rejection),
    /// It cannot go on, because an earlier step did not report what this one needs.
    Fails(Rejection),
    /// Another run is executed in its place.
    Duplicate(String),
    Starts(Vec<Effect>),
}

/// Makes the Job of the next attempt.
pub(super) fn plan(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    carry_on(situation, next(situation))
}

/// What follows if not all that the run refers to is there, or something of it is wrong.
pub(super) fn unresolved(situation: &Situation<'_>, unresolved: Unresolved) -> Decision<AgentRunStatus> {
    carry_on(situation, lacks(situation, unresolved))
}

pub(super) fn carry_on(situation: &Situation<'_>, next: Next) -> Decision<AgentRunStatus> {
    match next {
        Next::Unsure(questions) => Decision::Look(questions),
        Next::Waits(held) => waits(situation, &held),
        Next::Queues {
            waiting,
            repository,
            without,
        } => queues(situation, &waiting, repository, without.as_ref()),
        Next::Wrong(rejection) => reject(situation, &rejection),
        Next::Fails(why) => fail(situation, &why),
        Next::Duplicate(of) => admission::duplicate(situation, &of),
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
    match first_effects(situation) {
        Err(unresolved) => lacks(situation, unresolved),
        Ok(Made { effects, .. }) if lacks_token(situation, &effects) => Next::Starts(effects),
        // The queue comes last: nobody has a slot who could not use it.
        Ok(Made { effects, repository }) => match slot(situation, Some(situation.job_name()), repository) {
            Some(Next::Queues {
                waiting, repository, ..
            }) => Next::Queues {
                waiting,
                repository,
                without: skipped(situation.task, &effects),
            },
            Some(next) => next,
            None => Next::Starts(effects),
        },
    }
}

/// Whether the run waits for a token that could not be had. That is tried before the queue is asked: a turn that it could not
/// use would be in vain, and the wait for one would hide how long it has waited for the token.
fn lacks_token(situation: &Situation<'_>, effects: &[Effect]) -> bool {
    let mints = effects
        .iter()
        .any(|effect| matches!(effect, Effect::MintToken(_)));
    mints && waiting_since(situation, &Reason::VcsAuthUnavailable).is_some()
}

/// Why the Job that is about to be made has no version control, if it has none that was asked for.
fn skipped(task: Task<'_>, effects: &[Effect]) -> Option<Rejection> {
    effects.iter().find_map(|effect| {
        let Effect::CreateJob(new) = effect else {
            return None;
        };
        version_control::skipped(task, &Stamp::of(&new.job).vcs?)
    })
}

pub(super) fn lacks(situation: &Situation<'_>, unresolved: Unresolved) -> Next {
    match unresolved {
        Unresolved::Unsure(questions) => Next::Unsure(questions),
        Unresolved::Lacking(what) => match lacking(situation, what) {
            Ok(held) => Next::Waits(left_alone(situation, held)),
            Err(rejection) => Next::Wrong(rejection),
        },
        Unresolved::Wrong(rejection) => Next::Wrong(rejection),
        Unresolved::NotReported(why) => Next::Fails(why),
    }
}

/// The same wait, without looking at a forge that asks to be left alone. The wait is over at its deadline all the same.
fn left_alone(situation: &Situation<'_>, held: Held) -> Held {
    let rests = situation
        .observed
        .tokens
        .values()
        .filter_map(|token| match token {
            TokenSight::Ready { .. } => None,
            TokenSight::Failed { not_before, .. } => *not_before,
        });
    let look_at = rests.chain(held.look_at).max();
    Held {
        look_at: look_at.map(|at| held.waiting.until.map_or(at, |until| at.min(until))),
        ..held
    }
}

/// What follows from what the queue says; nothing if the run may start. Without a Job it is the run itself that takes the slot.
pub(super) fn slot(
    situation: &Situation<'_>,
    job: Option<String>,
    repository: Option<String>,
) -> Option<Next> {
    match admission::of(situation, job, repository.clone()) {
        Admission::Unasked(question) => Some(Next::Unsure(BTreeSet::from([question]))),
        Admission::Waits(waiting) => Some(Next::Queues {
            waiting: Box::new(waiting),
            repository,
            without: None,
        }),
        Admission::Duplicate(of) => Some(Next::Duplicate(of)),
        Admission::Granted => None,
    }
}

/// Says that the run waits for its turn.
fn queues(
    situation: &Situation<'_>,
    waiting: &Waiting,
    repository: Option<String>,
    without: Option<&Rejection>,
) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    if without.is_some() {
        next.version_control_skipped(without);
    }
    next.waits(waiting);
    next.status.waiting = limit_status(&waiting.gate, repository);
    Decision::Act(Plan {
        status: next.into_status(),
        ..Plan::nothing()
    })
}

/// The Job and what it needs, or the token that is needed first.
struct Made {
    effects: Vec<Effect>,
    /// The repository whose slot the Job takes, in lower case.
    repository: Option<String>,
}

/// The Job and what it needs, once all that the run refers to is there and allows it.
///
/// Before the first step of a workflow starts, all of them have to be possible: a mistake in the last one would otherwise
/// show when the others have done their work. A step that starts later finds what is there by then, and waits for what is not.
fn first_effects(situation: &Situation<'_>) -> Result<Made, Unresolved> {
    let task = situation.task;
    let is_new = situation.attempt.number == 0;
    let later: Vec<Task<'_>> = task.onwards(situation.run).skip(1).filter(|_| is_new).collect();
    acceptable(situation, &later)?;
    let reports = steps::reported(task, situation.status);
    let made = effects_of(situation, task, Earlier::Ran(&reports))?;
    for task in later {
        effects_of(situation, task, Earlier::NotRun)?;
    }
    Ok(made)
}

/// The Job of a task and what it needs.
fn effects_of(situation: &Situation<'_>, task: Task<'_>, earlier: Earlier<'_>) -> Result<Made, Unresolved> {
    let made = || {
        let parameters = steps::parameters(task, situation.run, earlier).map_err(Unresolved::NotReported)?;
        let run = task.run(situation.run, parameters);
        let resolved = references::resolve(situation, task, &run)?;
        build(situation, task, &run, &resolved, earlier)
    };
    made().map_err(|why: Unresolved| why.of(task))
}

/// Whether the run makes sense by itself, and this version can execute it.
fn acceptable(situation: &Situation<'_>, later: &[Task<'_>]) -> Result<(), Unresolved> {
    let run = situation.run;
    match &run.spec.runtime.type_ {
        RuntimeType::Job => job::check_run(run, situation.settings).map_err(Unresolved::Wrong),
        RuntimeType::Workflow => {
            steps::check(run).map_err(Unresolved::Wrong)?;
            [situation.task].iter().chain(later).try_for_each(|task| {
                let parameters =
                    steps::parameters(*task, run, Earlier::NotRun).map_err(Unresolved::NotReported)?;
                job::check_run(&task.run(run, parameters), situation.settings)
                    .map_err(|why| Unresolved::Wrong(why).of(*task))
            })
        }
        // One of the runtimes `temporal` and `custom` that was accepted as something else is given up before it comes here.
        other @ (RuntimeType::Temporal | RuntimeType::Custom | RuntimeType::Other(_)) => {
            Err(Unresolved::Wrong(Rejection::new(
                Reason::UnsupportedRuntime,
                format!(
                    "spec.runtime.type is {other}, which this version does not execute: use job, workflow, temporal or custom"
                ),
            )))
        }
    }
}

/// Makes the Job of a task, or the token that it needs first. `run` is the run as the task sees it.
fn build(
    situation: &Situation<'_>,
    task: Task<'_>,
    run: &AgentRun,
    resolved: &Resolved<'_>,
    earlier: Earlier<'_>,
) -> Result<Made, Unresolved> {
    let spec_hash = spec_hash(&situation.run.spec);
    let nothing = Value::Object(serde_json::Map::new());
    let reports = match earlier {
        Earlier::NotRun => &nothing,
        Earlier::Ran(reports) => reports,
    };
    let request = JobRequest {
        run,
        place: Place {
            step: task.number(),
            attempt: situation.attempt.current(),
        },
        step: task.step().map(|step| StepOfRun {
            name: task::name(step.spec),
            earlier: reports,
            timeout_seconds: step.spec.timeout_seconds.map(task::not_negative),
        }),
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        nats_auth: references::nats_auth(situation, resolved.agent)?,
        vcs: None,
        spec_hash: &spec_hash,
        admitted_at: admission::admitted_at(situation),
    };
    let vcs = match version_control::resolve(situation, task, run, resolved, earlier) {
        Ok(vcs) => vcs,
        Err(unclear) => {
            // What is wrong with the rest of the run is said first: no repository would help it.
            job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
            return Err(unclear);
        }
    };
    let request = JobRequest {
        vcs: match &vcs {
            Resolution::Ready(vcs) => Some(vcs),
            Resolution::Unasked | Resolution::Skipped(_) => None,
        },
        ..request
    };
    let mut built = job::build(&request, situation.settings).map_err(Unresolved::Wrong)?;
    let stamp = stamp(situation, task, resolved, &built, &vcs)?;
    if matches!(earlier, Earlier::Ran(_)) {
        // What a later step mounts may be made by the steps before it.
        references::there(situation, &foreign_needs(&built, &vcs))?;
    }
    let repository = match &vcs {
        Resolution::Ready(ready) => Some(ready.repository.to_lowercase()),
        Resolution::Unasked | Resolution::Skipped(_) => job::repository(run, resolved.implementation),
    };
    let effects = match with_token(situation, request.place, stamp, &vcs) {
        // All else is well, so that a token is made for something.
        Err(new) => vec![token::made(situation, new)],
        Ok(stamp) => {
            stamp.put_on(&mut built.job);
            creations(built, repository.as_deref())
        }
    };
    Ok(Made { effects, repository })
}

/// Creates the files of a Job and the Job, which says of which repository it takes a slot.
fn creations(built: BuiltJob, repository: Option<&str>) -> Vec<Effect> {
    let BuiltJob {
        mut job,
        pod_fields,
        config_map,
        ..
    } = built;
    if let Some(repository) = repository {
        let annotations = job.annotations_mut();
        annotations.insert(labels::REPOSITORY.to_owned(), repository.to_owned());
    }
    let files = config_map.map(|files| Effect::CreateConfigMap(Box::new(files)));
    let job = Effect::CreateJob(Box::new(NewJob { job, pod_fields }));
    files.into_iter().chain([job]).collect()
}

/// What the pod needs that is not made together with its Job.
fn foreign_needs(built: &BuiltJob, vcs: &Resolution) -> Needs {
    let mut needs = job::needs(&built.job);
    if let Some(files) = &built.config_map {
        needs.remove(&KeyHolder::ConfigMap(files.name_any()));
    }
    if let Resolution::Ready(ready) = vcs
        && let Some(secret) = &ready.token_secret
    {
        needs.remove(&KeyHolder::Secret(secret.clone()));
    }
    needs
}

/// What the Job carries for the status of the run.
fn stamp(
    situation: &Situation<'_>,
    task: Task<'_>,
    resolved: &Resolved<'_>,
    built: &BuiltJob,
    vcs: &Resolution,
) -> Result<Stamp, Unresolved> {
    let attempts_allowed = match task.attempts() {
        Some(attempts) => attempts,
        None => job::attempts_allowed(situation.run, Some(resolved.agent), situation.settings)
            .map_err(Unresolved::Wrong)?,
    };
    let system_prompt_hash = match &built.system_prompt_source {
        Some(source) => references::prompt_hash(situation, source)?,
        None => built.system_prompt_hash.clone(),
    };
    Ok(Stamp {
        attempts_allowed,
        system_prompt_hash,
        contract: built.contract.clone(),
        vcs: VcsStamp::of(vcs),
    })
}

/// The stamp of a Job with the token it needs. The error is the token that has to be made first.
fn with_token(
    situation: &Situation<'_>,
    place: Place,
    stamp: Stamp,
    vcs: &Resolution,
) -> Result<Stamp, Box<NewToken>> {
    let Resolution::Ready(ready) = vcs else {
        return Ok(stamp);
    };
    let Some(new) = token::wanted(situation, place, ready) else {
        return Ok(stamp);
    };
    let secret = new.secret.name_any();
    let Some(TokenSight::Ready { expires_at }) = situation.observed.tokens.get(&secret) else {
        return Err(Box::new(new));
    };
    let token = TokenStamp {
        secret,
        repository: new.repository,
        writes: new.writes,
        expires_at: *expires_at,
    };
    Ok(Stamp {
        vcs: stamp.vcs.map(|vcs| vcs.with_token(token)),
        ..stamp
    })
}
