//! What is made from the command line itself: examples, manual pages, and docs/agentctl.md.

use std::{fmt::Write as _, fs, path::Path};

use clap::{Arg, Command, CommandFactory as _};
use jangar_api::Kind;

use crate::{
    cli::Cli,
    error::{CODES, Error},
    nearest::nearest,
    session::Session,
};

/// `examples`: what stands below the help of a verb.
pub fn examples(session: &mut Session, verb: Option<&str>) -> Result<(), Error> {
    let command = Cli::command();
    let verbs: Vec<&Command> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .collect();
    if let Some(name) = verb
        && !verbs.iter().any(|verb| verb.get_name() == name)
    {
        let hint = match nearest(name, verbs.iter().map(|verb| verb.get_name())) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "`agentctl help` lists them".to_owned(),
        };
        return Err(Error::Validation(format!("there is no verb {name}: {hint}")));
    }
    for known in verbs
        .iter()
        .filter(|known| verb.is_none_or(|name| known.get_name() == name))
    {
        let text = known
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("  "));
        session.console.line(&format!("# {}", about(known)))?;
        for line in lines {
            session.console.line(line.trim_start())?;
        }
    }
    Ok(())
}

/// `man`: a page for the program and one for each verb.
pub fn manual(session: &mut Session, directory: &Path) -> Result<(), Error> {
    let failed =
        |error: std::io::Error| Error::Unknown(format!("{} cannot be written: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut command = Cli::command();
    command.build();
    let mut pages = vec![("agentctl".to_owned(), command.clone())];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("agentctl-{}", verb.get_name());
        pages.push((name.clone(), verb.clone().name(leaked(&name)).display_name(name)));
    }
    for (name, command) in pages {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
        fs::write(directory.join(format!("{name}.1")), page).map_err(failed)?;
    }
    session
        .console
        .note(&format!("pages written to {}", directory.display()))
}

/// clap keeps names that are made at run time for as long as the program runs, which ends right after.
fn leaked(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// docs/agentctl.md, as a whole.
pub fn document() -> String {
    let command = Cli::command();
    let mut text = String::from(PREFACE);
    text.push_str("\n## Global options\n\n| option | meaning |\n|---|---|\n");
    for argument in command.get_arguments().filter(|argument| is_told(argument)) {
        text.push_str(&row(argument));
    }
    text.push_str("\n## Exit codes\n\n| code | means |\n|---|---|\n");
    for (code, meaning) in CODES {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "| {code} | {meaning} |");
    }
    text.push_str("\n## Kinds\n\nAny of these words means the kind, in upper or lower case.\n\n| kind | words |\n|---|---|\n");
    for kind in Kind::ALL {
        let words: Vec<&str> = kind.words().collect();
        let _ = writeln!(text, "| {} | {} |", kind.info().kind, words.join(", "));
    }
    text.push_str("\n## Verbs\n");
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        described(verb, "agentctl", 3, &mut text);
    }
    text
}

/// What stands before what is generated.
const PREFACE: &str = "\
<!-- Generated from crates/agentctl/src/cli by `make generate`. Do not edit. -->
# agentctl

The command line for people who give work to agents. It talks to the API server of the kubeconfig: no control plane is needed, and
whatever Kubernetes lets you do, agentctl can. With `--grpc` it talks to the control plane of Jangar instead: see below. Data goes to
standard output, everything else to standard error; output for programs (`-o json`) is stable, with sorted keys.

Settings come from flags, else from variables, else from the file `agentctl/config.json` in `$XDG_CONFIG_HOME` or `~/.config`, else they
have defaults. The variables are `AGENTCTL_NAMESPACE`, `AGENTCTL_KUBECONFIG`, `AGENTCTL_CONTEXT`, `AGENTCTL_MODE` (`kube` or `grpc`),
`AGENTCTL_SERVER` (also `AGENTCTL_ADDRESS`, `JANGAR_GRPC_ADDRESS`), `AGENTCTL_TOKEN` (also `JANGAR_GRPC_TOKEN`), `AGENTCTL_TLS`,
`AGENTCTL_CA_CERT`, `AGENTCTL_CLIENT_CERT`, `AGENTCTL_CLIENT_KEY`, `AGENTCTL_NO_INPUT` and `NO_COLOR`. `agentctl config view` shows what
holds and where it comes from. Those of earlier versions that are about how the program was packed mean nothing any more:
`AGENTCTL_PROTO_PATH` (the contract is part of the program), `AGENTCTL_BINARY` and `AGENTCTL_VERSION` (there is one program, and nothing
that fetches it) and `AGENTCTL_DEBUG` (every error says what was being done, and why it failed). `run codex`, which let a local
program write the work down before submitting it, is absent: `create impl --text -` takes what any program writes.

A run is named by its kind and its name (`run NAME` or `run/NAME`); where only runs make sense the name is enough, and `@latest` is
the newest one. The name of a run that is submitted follows from the namespace, the agent and `--idempotency-key`: giving the same
command again meets the same run.

`approve` and `reject` decide as the user that the API server knows you as. In kube mode the decision is written with your own
rights, so you need to be allowed to patch `orchestrationruns/status`; whether you may decide is what the ApprovalPolicy says. A run
that agentctl makes says in an annotation who made it, in either mode, since that person may not approve it unless the policy has
`allowCreator`. In kube mode nobody but the right to write runs keeps people from changing that annotation.

`run --logs` shows what the run writes and ends when the run does, with the code that tells the outcome; `--timeout` counts from the
start. That a log cannot be read is a note, and changes no code.

`doctor` says `ok`, `warn` or `fail` of what it looked at, and `skip` of what it could not look at, with where that can be asked.

## gRPC mode

`--grpc` (or `AGENTCTL_MODE=grpc`) sends every verb to the control plane at `--server HOST:PORT`, with a token and without a
kubeconfig. The token is one that Kubernetes knows: the control plane acts with it, so you may do exactly what Kubernetes lets its
owner do. `agentctl auth login --with-token` keeps it in the configuration file, which only you can read; nothing prints it.

`--tls` checks the certificate of the control plane against whom this machine trusts, or against the file of `AGENTCTL_CA_CERT`;
`AGENTCTL_CLIENT_CERT` and `AGENTCTL_CLIENT_KEY` name a certificate to show. A token is not sent to another machine in the clear
unless `--no-tls` (or `AGENTCTL_TLS=false`, or `tls` in the configuration) says so; to this machine it may be.

Output is the same in both modes, except where one of them knows more:

| verb | in gRPC mode |
|---|---|
| `run` | the control plane checks the `--budget`, the `--secret-binding` of the Secrets and the length of the queue, and remembers the key of a run that is gone. With `--name`, `--label` or `--tool` the run is created as in kube mode |
| `get`, `describe`, `explain`, `graph`, `wait` | a run that is gone from the cluster is read from the history, if there is a database, and a note says so |
| `retry`, `resubmit` | so is its work; if a value of it was withheld as a secret, or was too long to be kept, the fields are named, and nothing is submitted until `--param` gives them |
| `list --archived` | the runs that the history has, the latest first, with `--phase`, `--search WORDS` and `--limit` |
| `logs` | of pods that are gone, what was kept of their logs is shown, step by step and attempt by attempt, and a note says of which pod, and whether its beginning is missing. With `-f` a log whose pod goes is read on from there. Its lines have no times |
| `approve`, `reject` | the control plane writes the decision: it takes the verb `approve` on `orchestrationruns`, and no right to write |
| `apply` | the nineteen kinds only; for others leave `--grpc` out |
| `status`, `doctor` | what the control plane knows, with its database and your rights; Jobs are looked at in kube mode |
| `version` | that of the control plane |

The control plane answers from caches that follow Kubernetes within moments, so that a list may lack for an instant what was made
just before it. Pods, their logs and Events are read with your token, too, so that you need the same rights as in kube mode for them.
What the control plane refuses ends with code 4, and with code 2 if what was asked for has to be corrected.
";

fn described(verb: &Command, above: &str, level: usize, text: &mut String) {
    let name = format!("{above} {}", verb.get_name());
    let _ = writeln!(text, "\n{} {name}\n\n{}", "#".repeat(level), about(verb));
    let usage = verb
        .clone()
        .bin_name(name.clone())
        .render_usage()
        .to_string()
        .replace("Usage: ", "");
    let _ = writeln!(text, "\n```\n{}\n```", usage.trim());
    let told: Vec<&Arg> = verb
        .get_arguments()
        .filter(|argument| is_told(argument) && !argument.is_global_set())
        .collect();
    if !told.is_empty() {
        text.push_str("\n| argument | meaning |\n|---|---|\n");
        for argument in told {
            text.push_str(&row(argument));
        }
    }
    if let Some(after) = verb.get_after_help() {
        let after = after.to_string();
        let examples = after.trim_start_matches("Examples:\n");
        let (examples, rest) = examples.split_once("\n\n").unwrap_or((examples, ""));
        let lines: Vec<&str> = examples.lines().map(str::trim_start).collect();
        let _ = writeln!(text, "\n```\n{}\n```", lines.join("\n"));
        if !rest.is_empty() {
            let _ = writeln!(text, "\n{rest}");
        }
    }
    for inner in verb.get_subcommands().filter(|inner| inner.get_name() != "help") {
        described(inner, &name, level + 1, text);
    }
}

fn is_told(argument: &Arg) -> bool {
    !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version")
}

fn row(argument: &Arg) -> String {
    let value = argument
        .get_value_names()
        .map(|names| {
            names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let value = if takes_value { value } else { String::new() };
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = argument.get_long() {
        names.push(format!("--{long}"));
    }
    let shown = match (names.is_empty(), value.as_str()) {
        (true, value) => value.to_owned(),
        (false, "") => names.join(", "),
        (false, value) => format!("{} {value}", names.join(", ")),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    format!(
        "| `{}` | {} |\n",
        shown.replace('|', "\\|"),
        help.replace('|', "\\|")
    )
}

#[cfg(test)]
mod tests {
    use std::{env, path::PathBuf};

    use super::*;

    #[test]
    fn the_command_line_makes_sense_to_its_parser() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_examples_that_can_be_parsed() {
        for verb in Cli::command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
        {
            let name = verb.get_name().to_owned();
            let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Examples:\n  "), "{name} has no examples");
            for line in after
                .lines()
                .filter(|line| line.trim_start().starts_with("agentctl "))
            {
                let words = shell_words(line.trim_start());
                let parsed = <Cli as clap::Parser>::try_parse_from(&words);
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            }
        }
    }

    /// The words of a line as a shell would see them, up to where a shell does something else.
    fn shell_words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let mut quote = None;
        let mut begun = false;
        for letter in line.chars() {
            match (quote, letter) {
                (None, '\'' | '"') => {
                    quote = Some(letter);
                    begun = true;
                }
                (Some(open), letter) if open == letter => quote = None,
                (None, '<' | '>' | '|') => break,
                (None, ' ') => {
                    if begun || !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    begun = false;
                }
                (_, letter) => word.push(letter),
            }
        }
        if begun || !word.is_empty() {
            words.push(word);
        }
        words
    }

    #[test]
    fn the_document_is_up_to_date() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/agentctl.md");
        let made = document();
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &made).expect("docs/agentctl.md is written");
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == made,
            "docs/agentctl.md is not what the command line says: run `UPDATE_GOLDEN=1 cargo test -p jangar-agentctl reference` and \
             commit it"
        );
    }
}
