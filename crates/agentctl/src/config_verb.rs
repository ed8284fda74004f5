//! `config`: what holds, and what is kept.

use serde_json::{Value, json};

use crate::{
    cli::ConfigVerb,
    config::{Chosen, ConfigFile, Mode, Source},
    error::Error,
    output::{self, Cell, Table},
    session::Session,
};

/// What is shown in place of a token.
const HIDDEN: &str = "(kept, not shown)";

pub fn config(session: &mut Session, verb: ConfigVerb) -> Result<(), Error> {
    match verb {
        ConfigVerb::View { show_secrets } => view(session, show_secrets),
        ConfigVerb::Set { key, value } => {
            let path = session.choices.config_file()?.to_owned();
            let mut file = ConfigFile::read(&path)?;
            file.set(key, &value)?;
            file.write(&path)?;
            session.console.note(&format!("{} written", path.display()))
        }
        ConfigVerb::Init => {
            let path = session.choices.config_file()?.to_owned();
            if path.exists() {
                return Err(Error::Validation(format!(
                    "{} is there already: change it with `agentctl config set`",
                    path.display()
                )));
            }
            let choices = &session.choices;
            let file = ConfigFile {
                namespace: choices.namespace.value.clone(),
                address: Some(choices.address.value.clone())
                    .filter(|_| choices.address.source != Source::Default),
                token: choices.token.value.clone(),
                tls: Some(choices.tls.value).filter(|_| choices.tls.source != Source::Default),
                kubeconfig: choices.kubeconfig.value.clone(),
                context: choices.context.value.clone(),
            };
            file.write(&path)?;
            session.console.note(&format!("{} written", path.display()))
        }
    }
}

fn view(session: &mut Session, show_secrets: bool) -> Result<(), Error> {
    let rows = rows(session, show_secrets);
    let format = session.format();
    if output::is_for_programs(&format) {
        let map: serde_json::Map<String, Value> = rows
            .into_iter()
            .map(|(name, value, source)| (name.to_owned(), json!({"value": value, "from": source.word()})))
            .collect();
        return output::value(session, &Value::Object(map));
    }
    let mut table = Table::new(["SETTING", "VALUE", "FROM"]);
    for (name, value, source) in rows {
        table.push(vec![
            Cell::plain(name),
            Cell::optional(value),
            Cell::plain(source.word()),
        ]);
    }
    output::show_table(session, &table)?;
    if let Some(path) = &session.choices.file {
        let there = if path.exists() { "" } else { ", which is not there" };
        let words = format!("file: {}{there}", path.display());
        session.console.note(&words)?;
    }
    Ok(())
}

fn rows(session: &Session, show_secrets: bool) -> Vec<(&'static str, Option<String>, Source)> {
    let choices = &session.choices;
    let text = |chosen: &Chosen<Option<String>>| (chosen.value.clone(), chosen.source);
    let mode = match choices.mode.value {
        Mode::Kube => "kube",
        Mode::Grpc => "grpc",
    };
    let (token, token_from) = text(&choices.token);
    let token = token.map(|token| if show_secrets { token } else { HIDDEN.to_owned() });
    let (namespace, namespace_from) = text(&choices.namespace);
    let (kubeconfig, kubeconfig_from) = text(&choices.kubeconfig);
    let (context, context_from) = text(&choices.context);
    let mut rows = vec![
        ("mode", Some(mode.to_owned()), choices.mode.source),
        ("namespace", namespace, namespace_from),
        ("kubeconfig", kubeconfig, kubeconfig_from),
        ("context", context, context_from),
        (
            "address",
            Some(choices.address.value.clone()),
            choices.address.source,
        ),
        ("tls", Some(choices.tls.value.to_string()), choices.tls.source),
        ("token", token, token_from),
    ];
    // Few have these, and whoever has them set them.
    for (name, chosen) in [
        ("caCert", &choices.ca_cert),
        ("clientCert", &choices.client_cert),
        ("clientKey", &choices.client_key),
    ] {
        if chosen.value.is_some() {
            rows.push((name, chosen.value.clone(), chosen.source));
        }
    }
    rows
}
