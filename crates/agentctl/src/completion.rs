//! `completion`: what a shell offers. Verbs and flags are written into the script; names of objects are asked for when they are
//! needed, with the hidden verb `__complete`.

use std::{fs, io, path::PathBuf, time::Duration};

use clap::CommandFactory as _;
use clap_complete::Shell;
use jangar_api::Kind;
use tokio::time::timeout;

use crate::{
    cli::{Cli, CompletionArgs, CompletionVerb},
    environment::Environment,
    error::Error,
    resource::{self, RUNS},
    session::Session,
};

/// How long a shell waits for names: longer than that, nobody remembers that they pressed the key.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many names are offered.
const NAMES_MAX: usize = 500;

/// The script asks for live names first, and offers what it knows itself if there are none.
const BASH: &str = r#"
_agentctl_live() {
    local names
    names=$(agentctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -n "$names" ]; then
        COMPREPLY=($(compgen -W "$names" -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        _agentctl "$@"
    fi
}
complete -F _agentctl_live -o nosort -o bashdefault -o default agentctl
"#;
const ZSH: &str = r#"
_agentctl_live() {
    local -a names
    names=(${(f)"$(agentctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#names} )); then
        compadd -a names
    else
        _agentctl "$@"
    fi
}
compdef _agentctl_live agentctl
"#;
const FISH: &str = r"
complete -c agentctl -f -a '(agentctl __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
";

pub fn completion(session: &mut Session, arguments: &CompletionArgs) -> Result<(), Error> {
    match (&arguments.verb, arguments.shell) {
        (Some(CompletionVerb::Install { shell }), _) => install(session, *shell),
        (None, Some(shell)) => {
            let text = script(shell)?;
            session.console.data(&text)
        }
        // The command line does not let that pass.
        (None, None) => Err(Error::Validation("name the shell".to_owned())),
    }
}

fn script(shell: Shell) -> Result<String, Error> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "agentctl", &mut script);
    let mut text = String::from_utf8(script)
        .map_err(|error| Error::Unknown(format!("the script is no text: {error}")))?;
    text.push_str(match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    });
    Ok(text)
}

/// Writes the script where the shell looks for those of its user.
fn install(session: &mut Session, shell: Option<Shell>) -> Result<(), Error> {
    let shell = match shell {
        Some(shell) => shell,
        None => session
            .environment
            .get("SHELL")
            .and_then(Shell::from_shell_path)
            .ok_or_else(|| {
                Error::Validation(
                    "the variable SHELL names no shell: say which, bash, zsh or fish".to_owned(),
                )
            })?,
    };
    let (path, hint) = place(shell, &session.environment)?;
    let failed = |error: io::Error| Error::Unknown(format!("{} cannot be written: {error}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(&path, script(shell)?).map_err(failed)?;
    session
        .console
        .note(&format!("{} written; {hint}", path.display()))
}

/// Where a shell looks, and what is left to do.
fn place(shell: Shell, environment: &Environment) -> Result<(PathBuf, &'static str), Error> {
    let home = || {
        let home = environment.get("HOME").map(PathBuf::from);
        home.ok_or_else(|| Error::Validation("there is no place to write to: set HOME".to_owned()))
    };
    let base = |variable: &str, below: &str| match environment.get(variable) {
        Some(base) => Ok(PathBuf::from(base)),
        None => home().map(|home| home.join(below)),
    };
    match shell {
        Shell::Bash => {
            let base = base("XDG_DATA_HOME", ".local/share")?;
            let hint = "it takes the package bash-completion, and holds in new shells";
            Ok((base.join("bash-completion/completions/agentctl"), hint))
        }
        Shell::Zsh => {
            let hint =
                "put `fpath+=(~/.zfunc); autoload -Uz compinit; compinit` into ~/.zshrc if it is not there";
            Ok((home()?.join(".zfunc/_agentctl"), hint))
        }
        Shell::Fish => {
            let base = base("XDG_CONFIG_HOME", ".config")?;
            Ok((
                base.join("fish/completions/agentctl.fish"),
                "it holds in new shells",
            ))
        }
        other => Err(Error::Validation(format!(
            "where {other} looks for completions is not known: write it there yourself, with agentctl completion {other}"
        ))),
    }
}

/// What can stand at the end of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Offer {
    Kinds,
    Names(Vec<Kind>),
    /// What the script knows itself.
    Nothing,
}

/// Prints what could stand at the place of the last word. Nothing is ever an error: a shell would show it in the middle of a line.
pub async fn names(session: &mut Session, words: &[String]) -> Result<(), Error> {
    let names = match offer(words) {
        Offer::Nothing => Vec::new(),
        Offer::Kinds => Kind::ALL
            .iter()
            .map(|kind| resource::word(*kind).to_owned())
            .collect(),
        Offer::Names(kinds) => timeout(PATIENCE, live(session, words, &kinds))
            .await
            .unwrap_or_default(),
    };
    let typed = words.last().map_or("", String::as_str);
    for name in names
        .iter()
        .filter(|name| name.starts_with(typed))
        .take(NAMES_MAX)
    {
        session.console.line(name)?;
    }
    Ok(())
}

async fn live(session: &mut Session, words: &[String], kinds: &[Kind]) -> Vec<String> {
    let Ok(transport) = session.connect().await else {
        return Vec::new();
    };
    let namespace = flag(words, &["-n", "--namespace"]).unwrap_or_else(|| session.namespace());
    let mut names = Vec::new();
    for kind in kinds {
        if let Ok(objects) = transport.list(*kind, Some(&namespace), None).await {
            names.extend(objects.iter().map(|object| object.name().to_owned()));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The value of a flag on a command line that is being typed.
fn flag(words: &[String], names: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| names.contains(&word.as_str()))?;
    // What is under the cursor is not finished.
    words.get(at + 1).filter(|_| at + 2 < words.len()).cloned()
}

fn offer(words: &[String]) -> Offer {
    let (typed, before) = match words.split_last() {
        Some((typed, before)) => (typed.as_str(), before),
        None => return Offer::Nothing,
    };
    if typed.starts_with('-') {
        return Offer::Nothing;
    }
    match before.last().map(String::as_str) {
        Some("--agent") => return Offer::Names(vec![Kind::Agent]),
        Some("--impl") => return Offer::Names(vec![Kind::ImplementationSpec]),
        Some("--orchestration") => return Offer::Names(vec![Kind::Orchestration]),
        Some("--tool") => return Offer::Names(vec![Kind::Tool]),
        Some("--vcs") => return Offer::Names(vec![Kind::VersionControlProvider]),
        Some("--memory-ref") => return Offer::Names(vec![Kind::Memory]),
        _ => {}
    }
    let plain = Plain::of(before);
    if plain.awaits_value {
        // The value of a flag is no name of an object.
        return Offer::Nothing;
    }
    match plain.words.as_slice() {
        ["get" | "list" | "describe" | "watch" | "delete"] => Offer::Kinds,
        [
            "get" | "describe" | "watch" | "delete" | "wait" | "explain" | "graph" | "logs" | "cancel"
            | "retry" | "resubmit",
            kind,
        ] => resource::kind(kind).map_or(Offer::Nothing, |kind| Offer::Names(vec![kind])),
        ["wait" | "explain" | "logs" | "cancel" | "retry" | "resubmit"] => Offer::Names(RUNS.to_vec()),
        ["graph" | "approve" | "reject"] => Offer::Names(vec![Kind::OrchestrationRun]),
        _ => Offer::Nothing,
    }
}

/// What stands on a command line beside flags and their values.
struct Plain<'a> {
    words: Vec<&'a str>,
    /// The last word is a flag whose value comes next.
    awaits_value: bool,
}

impl<'a> Plain<'a> {
    fn of(line: &'a [String]) -> Self {
        let cli = Cli::command();
        let mut verb: Option<&clap::Command> = None;
        let mut plain = Self {
            words: Vec::new(),
            awaits_value: false,
        };
        for word in line {
            if plain.awaits_value {
                plain.awaits_value = false;
            } else if word.starts_with('-') {
                // The same flag has a value with one verb and none with another.
                let known = cli
                    .get_arguments()
                    .chain(verb.into_iter().flat_map(clap::Command::get_arguments));
                plain.awaits_value = known
                    .filter(|argument| wants_value(argument))
                    .any(|argument| is_called(argument, word));
            } else {
                verb = verb.or_else(|| cli.find_subcommand(word));
                plain.words.push(word);
            }
        }
        plain
    }
}

fn wants_value(argument: &clap::Arg) -> bool {
    let optional = argument
        .get_num_args()
        .is_some_and(|values| values.min_values() == 0);
    argument.get_action().takes_values() && !optional
}

fn is_called(argument: &clap::Arg, word: &str) -> bool {
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    long.as_deref() == Some(word) || short.as_deref() == Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Offer {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        offer(&words)
    }

    #[test]
    fn a_shell_finds_the_script_where_it_looks() {
        let at = |shell, environment: &Environment| {
            place(shell, environment).map(|(path, _)| path.display().to_string())
        };
        let home = Environment::from([("HOME", "/home/ada")]);
        for (shell, expected) in [
            (
                Shell::Bash,
                "/home/ada/.local/share/bash-completion/completions/agentctl",
            ),
            (Shell::Zsh, "/home/ada/.zfunc/_agentctl"),
            (Shell::Fish, "/home/ada/.config/fish/completions/agentctl.fish"),
        ] {
            assert_eq!(at(shell, &home).expect("a place"), expected);
        }
        let moved = Environment::from([("XDG_DATA_HOME", "/data")]);
        assert_eq!(
            at(Shell::Bash, &moved).expect("a place"),
            "/data/bash-completion/completions/agentctl"
        );
        assert!(at(Shell::Zsh, &moved).is_err());
        assert!(at(Shell::PowerShell, &home).is_err());
    }

    #[test]
    fn names_are_offered_where_names_belong() {
        assert_eq!(offered("get "), Offer::Kinds);
        assert_eq!(offered("get run "), Offer::Names(vec![Kind::AgentRun]));
        assert_eq!(offered("cancel "), Offer::Names(RUNS.to_vec()));
        assert_eq!(offered("approve "), Offer::Names(vec![Kind::OrchestrationRun]));
        assert_eq!(offered("run --agent "), Offer::Names(vec![Kind::Agent]));
        assert_eq!(offered("run --param "), Offer::Nothing);
        assert_eq!(offered("get run -"), Offer::Nothing);
        assert_eq!(offered("get run -n team "), Offer::Names(vec![Kind::AgentRun]));
        assert_eq!(
            offered("--server host:1 get --output json run -A "),
            Offer::Names(vec![Kind::AgentRun])
        );
        assert_eq!(
            offered("get --namespace=team run "),
            Offer::Names(vec![Kind::AgentRun])
        );
        assert_eq!(offered("get run -n "), Offer::Nothing);
        assert_eq!(offered("logs -f "), Offer::Names(RUNS.to_vec()));
        assert_eq!(offered("logs --tail 5 "), Offer::Names(RUNS.to_vec()));
        assert_eq!(offered(""), Offer::Nothing);
    }
}
