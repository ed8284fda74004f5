//! `cancel`: asks a run to stop, and waits for that if asked to.

use crate::{
    cli::OneRunArgs,
    error::{self, Error},
    resource::{self, word},
    session::Session,
    wait,
};

pub async fn cancel(session: &mut Session, arguments: &OneRunArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
    let (name, namespace) = (object.name().to_owned(), object.namespace().to_owned());
    let shown = format!("{}/{name}", word(kind));
    if object.has_ended() {
        return session
            .console
            .line(&format!("{shown} has ended already: {}", object.phase()));
    }
    let cancelled = transport
        .cancel(kind, &namespace, &name, arguments.reason.as_deref())
        .await?;
    if !arguments.wait {
        session.console.line(&format!("{shown} is asked to stop"))?;
        return session.console.note(&format!(
            "it is over when its pods are gone: agentctl wait {} {name} -n {namespace}",
            word(kind)
        ));
    }
    session.console.note(&format!("{shown} is asked to stop"))?;
    match wait::until_complete(session, &transport, kind, cancelled, arguments.timeout, None).await {
        // That is what was wanted.
        Err(Error::Silent(error::RUN_CANCELLED)) => Ok(()),
        other => other,
    }
}
