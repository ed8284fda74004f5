//! Runs: `submit` makes one, `cancel` stops one, `again` does the work of one again, and `create` describes work.

pub mod again;
pub mod cancel;
pub mod create;
mod submit;

use jangar_api::Kind;

use crate::{
    cli::{Following, RunArgs, RunVerb},
    error::Error,
    logs::{self, Reading},
    object::Object,
    output::{self, Format},
    resource::word,
    session::Session,
    transport::Transport,
    wait,
};

pub async fn run(session: &mut Session, arguments: RunArgs) -> Result<(), Error> {
    match arguments.verb {
        None => submit::submit(session, &arguments.submit).await,
        Some(RunVerb::Submit(arguments)) => submit::submit(session, &arguments).await,
        Some(RunVerb::Logs(arguments)) => logs::logs(session, &arguments).await,
        Some(RunVerb::Wait(arguments)) => wait::wait(session, &arguments).await,
        Some(RunVerb::Cancel(arguments)) => cancel::cancel(session, &arguments).await,
    }
}

/// Tells of a run that was made, or met, and does with it what was asked for.
async fn made(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    object: Object,
    what: &str,
    following: &Following,
) -> Result<(), Error> {
    let words = format!("{}/{} {what}", word(kind), object.name());
    if !following.wait && !following.logs {
        return match session.format() {
            Format::Table | Format::Wide => {
                session.console.line(&words)?;
                session.console.note(&format!(
                    "follow it with: agentctl logs -f {} {} -n {}",
                    word(kind),
                    object.name(),
                    object.namespace()
                ))
            }
            _ => output::object(session, kind, &object),
        };
    }
    session.console.note(&words)?;
    let logs = following.logs.then(|| Reading::follow(transport, kind, &object));
    wait::until_complete(session, transport, kind, object, following.timeout, logs).await
}
