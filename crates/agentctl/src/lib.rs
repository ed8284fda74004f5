//! agentctl: the person at the terminal submits work, watches it, learns why it waits or failed, stops it, approves it.
//!
//! [`main_with`] is the whole program as a function of its arguments and its environment. `cli` has every verb with its flags and
//! its examples; each verb is a module. What they share:
//!
//! | module | subject |
//! |---|---|
//! | [`config`], [`environment`] | flags over variables over the file over defaults |
//! | [`session`] | what a verb works with |
//! | [`transport`] | the way to the cluster: the API server of the kubeconfig, or the control plane |
//! | [`resource`], [`object`] | from the words of a command line to an object, and what it says |
//! | [`output`], [`console`] | data to standard output, everything else to standard error |
//! | [`error`] | exit codes |
//!
//! Decisions are not made here: `lint`, `plan`, `explain` and approvals ask `jangar-engine`, as the controllers do.

pub mod apply;
pub mod approvals;
pub mod auth;
pub mod check;
pub mod cli;
pub mod clock;
pub mod completion;
pub mod config;
pub mod config_verb;
pub mod console;
pub mod control_plane;
pub mod delete;
pub mod describe;
pub mod doctor;
pub mod environment;
pub mod error;
pub mod explain;
pub mod first;
pub mod graph;
pub mod list;
pub mod logs;
pub mod manifest;
pub mod nearest;
pub mod object;
pub mod output;
pub mod reference;
pub mod resource;
pub mod run;
pub mod session;
pub mod status;
pub mod top;
pub mod transport;
pub mod version;
pub mod wait;
pub mod watch;

use std::{
    ffi::OsString,
    io::{self, Write as _},
};

use clap::Parser as _;

pub use self::environment::Environment;
use self::{
    cli::{Cli, Verb},
    error::Error,
    session::Session,
};

/// Runs one command line, and says which code to end with.
pub fn main_with(arguments: impl IntoIterator<Item = OsString>, environment: Environment) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be told if this fails.
            let _ = error.print();
            return if error.use_stderr() {
                error::VALIDATION
            } else {
                error::OK
            };
        }
    };
    let result = Session::new(&cli.global, environment).and_then(|session| execute(cli.verb, session));
    match result {
        Ok(()) => error::OK,
        Err(error) => {
            let words = error.to_string();
            if !words.is_empty() && !matches!(error, Error::BrokenPipe) {
                // As above.
                let _ = writeln!(io::stderr(), "agentctl: {words}");
            }
            error.code()
        }
    }
}

fn execute(verb: Verb, session: Session) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::Unknown(format!("threads cannot be started: {error}")))?;
    let result = runtime.block_on(dispatch(verb, session));
    // A task that still reads a log is of no interest any more.
    runtime.shutdown_background();
    result
}

async fn dispatch(verb: Verb, mut session: Session) -> Result<(), Error> {
    let session = &mut session;
    match verb {
        Verb::Run(arguments) => run::run(session, *arguments).await,
        Verb::List(arguments) => list::list(session, &arguments).await,
        Verb::Get(arguments) => list::get(session, &arguments).await,
        Verb::Describe(arguments) => describe::describe(session, &arguments).await,
        Verb::Watch(arguments) => watch::watch(session, &arguments).await,
        Verb::Wait(arguments) => wait::wait(session, &arguments).await,
        Verb::Logs(arguments) => logs::logs(session, &arguments).await,
        Verb::Explain(arguments) => explain::explain(session, &arguments).await,
        Verb::Graph(arguments) => graph::graph(session, &arguments).await,
        Verb::Cancel(arguments) => run::cancel::cancel(session, &arguments).await,
        Verb::Retry(arguments) => run::again::retry(session, &arguments).await,
        Verb::Resubmit(arguments) => run::again::resubmit(session, &arguments).await,
        Verb::Approve(arguments) => approvals::approve(session, &arguments).await,
        Verb::Reject(arguments) => approvals::reject(session, &arguments).await,
        Verb::Approvals(arguments) => approvals::list(session, &arguments).await,
        Verb::Apply(arguments) => apply::apply(session, &arguments).await,
        Verb::Delete(arguments) => delete::delete(session, &arguments).await,
        Verb::Create(arguments) => run::create::create(session, arguments).await,
        Verb::Init(arguments) => first::init(session, arguments).await,
        Verb::Lint(arguments) => check::lint::lint(session, &arguments),
        Verb::Plan(arguments) => check::plan::plan(session, &arguments).await,
        Verb::Top(arguments) => top::top(session, &arguments).await,
        Verb::Status => status::status(session).await,
        Verb::Doctor(arguments) => doctor::doctor(session, &arguments).await,
        Verb::Config(arguments) => config_verb::config(session, arguments.verb),
        Verb::Auth(arguments) => auth::auth(session, arguments.verb).await,
        Verb::Completion(arguments) => completion::completion(session, &arguments),
        Verb::Version(arguments) => version::version(session, &arguments).await,
        Verb::Quickstart => first::quickstart(session),
        Verb::Examples(arguments) => reference::examples(session, arguments.verb.as_deref()),
        Verb::Man(arguments) => reference::manual(session, &arguments.dir),
        Verb::Complete(arguments) => completion::names(session, &arguments.words).await,
    }
}
