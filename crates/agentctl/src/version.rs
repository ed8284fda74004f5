//! `version`: of this program, and of the API server.

use serde_json::json;

use crate::{cli::VersionArgs, error::Error, output, session::Session};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub async fn version(session: &mut Session, arguments: &VersionArgs) -> Result<(), Error> {
    let server = if arguments.client {
        None
    } else {
        let transport = session.connect().await?;
        Some(transport.kube().version().await?)
    };
    let format = session.format();
    if output::is_for_programs(&format) {
        return output::value(session, &json!({"agentctl": VERSION, "kubernetes": server}));
    }
    session.console.line(&format!("agentctl {VERSION}"))?;
    match server {
        Some(server) => session.console.line(&format!("Kubernetes {server}")),
        None => Ok(()),
    }
}
