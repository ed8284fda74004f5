//! `auth`: who you are, and the token for the control plane.

use std::io::Read as _;

use serde_json::json;

use crate::{
    cli::AuthVerb,
    config::{ConfigFile, Source},
    error::Error,
    output,
    session::Session,
    transport::Transport,
};

/// No token is longer: something else was piped in.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

pub async fn auth(session: &mut Session, verb: AuthVerb) -> Result<(), Error> {
    match verb {
        AuthVerb::Login { with_token } => {
            let token = if with_token {
                let mut text = String::new();
                std::io::stdin()
                    .lock()
                    .take(TOKEN_BYTES_MAX)
                    .read_to_string(&mut text)?;
                text.trim().to_owned()
            } else {
                // One that is kept already is no new one.
                let given = session.choices.token.clone();
                given
                    .value
                    .filter(|_| given.source != Source::File)
                    .unwrap_or_default()
            };
            if token.is_empty() {
                return Err(Error::Validation(
                    "there is no token: give it with --token, or pipe it in with --with-token".to_owned(),
                ));
            }
            keep(session, Some(token))?;
            session.console.note("the token is kept")
        }
        AuthVerb::Logout => {
            keep(session, None)?;
            session.console.note("the token is forgotten")
        }
        AuthVerb::Status => status(session).await,
    }
}

fn keep(session: &Session, token: Option<String>) -> Result<(), Error> {
    let path = session.choices.config_file()?;
    let mut file = ConfigFile::read(path)?;
    if token.is_none() && !path.exists() {
        return Ok(());
    }
    file.token = token;
    file.write(path)
}

async fn status(session: &mut Session) -> Result<(), Error> {
    let transport = session.connect().await?;
    let identity = transport.identity().await?;
    let server = match &transport {
        Transport::Kube(kube) => kube.server().to_owned(),
        Transport::Grpc(grpc) => grpc.address().to_owned(),
    };
    let has_token = session.choices.token.value.is_some();
    let format = session.format();
    if output::is_for_programs(&format) {
        return output::value(
            session,
            &json!({"server": server, "user": identity.user, "groups": identity.groups, "controlPlaneToken": has_token}),
        );
    }
    session.console.line(&format!("Server: {server}"))?;
    session.console.line(&format!("User:   {}", identity.user))?;
    session
        .console
        .line(&format!("Groups: {}", identity.groups.join(", ")))?;
    let token = if has_token { "kept" } else { "none" };
    session
        .console
        .line(&format!("Token for the control plane: {token}"))
}
