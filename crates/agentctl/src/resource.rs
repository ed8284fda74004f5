//! From the words of a command line to a kind and a name.

use jangar_api::Kind;

use crate::{error::Error, nearest::nearest, object::Object, session::Session, transport::Transport};

/// The name that stands for the newest run.
const LATEST: &str = "@latest";
/// The kinds of runs, in the order in which a bare name is looked for.
pub const RUNS: [Kind; 3] = [Kind::AgentRun, Kind::OrchestrationRun, Kind::ToolRun];

/// The kind that a word means.
pub fn kind(word: &str) -> Result<Kind, Error> {
    let lower = word.to_ascii_lowercase();
    let found = Kind::ALL
        .iter()
        .find(|kind| kind.words().any(|known| known == lower));
    found.copied().ok_or_else(|| {
        let words = Kind::ALL.iter().flat_map(|kind| kind.words());
        let hint = match nearest(&lower, words) {
            Some(meant) => format!("did you mean {meant}? "),
            None => String::new(),
        };
        Error::Validation(format!(
            "there is no kind '{word}': {hint}`agentctl get kinds` lists all"
        ))
    })
}

/// The word for a kind in commands that we tell people to type.
pub fn word(kind: Kind) -> &'static str {
    let info = kind.info();
    match kind {
        Kind::AgentRun => "run",
        _ => info.singular.as_str(),
    }
}

/// `KIND`, `KIND NAME` or `KIND/NAME`.
pub fn kind_and_name(words: &[String]) -> Result<(Kind, Option<String>), Error> {
    match words {
        [one] => match one.split_once('/') {
            Some((of, name)) => Ok((kind(of)?, Some(legal(name)?))),
            None => Ok((kind(one)?, None)),
        },
        [of, name] => Ok((kind(of)?, Some(legal(name)?))),
        _ => Err(Error::Validation("give a kind, and a name".to_owned())),
    }
}

/// `KIND NAME` or `KIND/NAME`, both.
pub fn one(words: &[String]) -> Result<(Kind, String), Error> {
    match kind_and_name(words)? {
        (kind, Some(name)) => Ok((kind, name)),
        (kind, None) => Err(Error::Validation(format!(
            "give the name of the {} as well: agentctl list {} shows them",
            kind.info().kind,
            kind.info().plural
        ))),
    }
}

/// A name goes into the path of a request, where only some letters may stand.
fn legal(name: &str) -> Result<String, Error> {
    let allowed =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    if name == LATEST || (!name.is_empty() && name.len() <= 253 && name.chars().all(allowed)) {
        return Ok(name.to_owned());
    }
    Err(Error::Validation(format!(
        "'{name}' cannot be the name of an object: names have lower-case letters, digits, dots and dashes"
    )))
}

/// The run that the words name: `NAME`, `KIND NAME` or `KIND/NAME`. A bare name is looked for among all kinds of runs, and
/// `@latest` is the newest one.
pub async fn run(
    session: &Session,
    transport: &Transport,
    words: &[String],
) -> Result<(Kind, Object), Error> {
    let bare = match words {
        [one] if !one.contains('/') => Some(legal(one)?),
        _ => None,
    };
    let namespace = session.namespace();
    let Some(name) = bare else {
        let (kind, name) = one(words)?;
        if !kind.is_run() {
            return Err(Error::Validation(format!(
                "{} {name} is no run: this is for {}",
                kind.info().kind,
                RUNS.map(|kind| kind.info().kind.as_str()).join(", ")
            )));
        }
        if name == LATEST {
            return newest(transport, &namespace, &[kind]).await;
        }
        return Ok((kind, object(transport, kind, &namespace, &name).await?));
    };
    if name == LATEST {
        return newest(transport, &namespace, &RUNS).await;
    }
    let mut found = Vec::new();
    for kind in RUNS {
        if let Some(object) = transport.find(kind, &namespace, &name).await? {
            found.push((kind, object));
        }
    }
    if found.is_empty() {
        for kind in RUNS {
            if let Some(object) = transport.remembered(kind, &namespace, &name).await? {
                found.push((kind, object));
            }
        }
    }
    match found.len() {
        1 => found
            .pop()
            .ok_or_else(|| Error::Unknown("a run that was found is gone".to_owned())),
        0 => Err(missing(transport, &namespace, &name).await),
        _ => {
            let kinds: Vec<&str> = found
                .iter()
                .map(|(kind, _)| kind.info().singular.as_str())
                .collect();
            Err(Error::Validation(format!(
                "{name} is the name of several runs: say which is meant, as in {}/{name}; there are {}",
                kinds.first().copied().unwrap_or_default(),
                kinds.join(" and ")
            )))
        }
    }
}

/// One object, which has to be there; of a run also what is remembered of it, if that is all.
pub async fn object(transport: &Transport, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
    match transport.get(kind, namespace, name).await {
        Err(error) if error.is_not_found() => {
            let remembered = transport.remembered(kind, namespace, name).await?;
            remembered.ok_or(error)
        }
        other => other,
    }
}

/// Says of a run that it is gone, if it is: it looks as if it were there.
pub fn note_if_gone(session: &mut Session, kind: Kind, object: &Object) -> Result<(), Error> {
    let Some(remembered) = object.remembered() else {
        return Ok(());
    };
    let cut = if remembered.cut {
        ", which was too long to be kept whole"
    } else {
        ""
    };
    session.console.note(&format!(
        "{} {} is gone from the cluster: this is what the history has of it{cut}",
        word(kind),
        object.name()
    ))
}

async fn newest(transport: &Transport, namespace: &str, kinds: &[Kind]) -> Result<(Kind, Object), Error> {
    let mut newest: Option<(Kind, Object)> = None;
    for kind in kinds {
        for object in transport.list(*kind, Some(namespace), None).await? {
            let age = |object: &Object| {
                (
                    object.created().unwrap_or_default().to_owned(),
                    object.name().to_owned(),
                )
            };
            if newest.as_ref().is_none_or(|(_, known)| age(known) < age(&object)) {
                newest = Some((*kind, object));
            }
        }
    }
    newest.ok_or_else(|| transport.trouble(format!("there is no run in namespace {namespace}")))
}

/// That there is no such run, with the one that was probably meant.
async fn missing(transport: &Transport, namespace: &str, name: &str) -> Error {
    let mut names = Vec::new();
    for kind in RUNS {
        if let Ok(objects) = transport.list(kind, Some(namespace), None).await {
            names.extend(objects.iter().map(|object| object.name().to_owned()));
        }
    }
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`agentctl list` shows those of agents".to_owned(),
    };
    transport.trouble(format!("there is no run {name} in namespace {namespace}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_kind_has_many_names() {
        for (word, meant) in [
            ("run", Kind::AgentRun),
            ("AgentRuns", Kind::AgentRun),
            ("ar", Kind::AgentRun),
            ("impl", Kind::ImplementationSpec),
            ("spec", Kind::ImplementationSpec),
            ("vcs", Kind::VersionControlProvider),
            ("orun", Kind::OrchestrationRun),
            ("approval", Kind::ApprovalPolicy),
            ("provider", Kind::AgentProvider),
            ("source", Kind::ImplementationSource),
        ] {
            assert_eq!(kind(word).expect(word), meant);
        }
    }

    #[test]
    fn an_unknown_kind_gets_the_nearest_name() {
        let error = kind("orchestratoin").expect_err("no such kind").to_string();
        assert!(error.contains("did you mean orchestration?"), "{error}");
        assert!(
            !kind("pod")
                .expect_err("no such kind")
                .to_string()
                .contains("pod?")
        );
    }

    #[test]
    fn kind_and_name_come_in_two_forms() {
        let expected = (Kind::AgentRun, "a".to_owned());
        assert_eq!(one(&words(&["run", "a"])).expect("two words"), expected);
        assert_eq!(one(&words(&["run/a"])).expect("a slash"), expected);
        assert!(one(&words(&["run"])).is_err());
        assert!(one(&words(&["run", "../secrets"])).is_err());
        assert!(one(&words(&["run", ""])).is_err());
    }
}
