//! `delete`: one object. What is still at work is asked about first.

use crate::{
    cli::DeleteArgs,
    error::Error,
    resource::{self, word},
    session::Session,
};

pub async fn delete(session: &mut Session, arguments: &DeleteArgs) -> Result<(), Error> {
    let (kind, name) = resource::one(&arguments.what)?;
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let object = transport.get(kind, &namespace, &name).await?;
    let shown = format!("{}/{}", word(kind), object.name());
    if arguments.dry_run {
        return session
            .console
            .line(&format!("{shown} would be deleted (dry run)"));
    }
    if kind.is_run() && !object.has_ended() {
        session.confirm(&format!(
            "{shown} has not ended ({}). Deleting it stops its work, and its result is lost; `agentctl cancel {} {name} -n \
             {namespace}` stops it and keeps the record. Delete it?",
            object.phase(),
            word(kind)
        ))?;
    }
    transport.delete(kind, &namespace, &name).await?;
    session.console.line(&format!("{shown} deleted"))?;
    let held: Vec<&str> = object.finalizers().collect();
    if !held.is_empty() {
        session.console.note(&format!(
            "it goes when {} has been dealt with: agentctl wait {} {name} -n {namespace} --for delete",
            held.join(" and "),
            word(kind)
        ))?;
    }
    Ok(())
}
