//! `version`: of this program, and of whoever answers.

use serde_json::json;

use crate::{cli::VersionArgs, error::Error, output, session::Session, transport::Transport};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub async fn version(session: &mut Session, arguments: &VersionArgs) -> Result<(), Error> {
    let (kubernetes, control_plane) = if arguments.client {
        (None, None)
    } else {
        match session.connect().await? {
            Transport::Kube(kube) => (Some(kube.version().await?), None),
            Transport::Grpc(grpc) => (None, Some(grpc.server_info().await?.version)),
        }
    };
    let format = session.format();
    if output::is_for_programs(&format) {
        let mut value = json!({"agentctl": VERSION, "kubernetes": kubernetes});
        if let (Some(version), Some(map)) = (control_plane, value.as_object_mut()) {
            map.insert("controlPlane".to_owned(), json!(version));
        }
        return output::value(session, &value);
    }
    session.console.line(&format!("agentctl {VERSION}"))?;
    if let Some(version) = kubernetes {
        session.console.line(&format!("Kubernetes {version}"))?;
    }
    if let Some(version) = control_plane {
        session.console.line(&format!("Jangar {version}"))?;
    }
    Ok(())
}
