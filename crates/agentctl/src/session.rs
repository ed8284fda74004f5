//! What a verb works with: the streams, the choices, the clock, and the way to the cluster.

use std::io::{BufRead as _, IsTerminal as _};

use crate::{
    cli::Global,
    clock::{Clock, NOW_VARIABLE},
    config::{Choices, DEFAULT_NAMESPACE, Mode},
    console::Console,
    environment::Environment,
    error::Error,
    output::Format,
    transport::{Transport, grpc::Grpc, kube::Kube},
};

/// One call of agentctl.
#[derive(Debug)]
pub struct Session {
    pub console: Console,
    pub choices: Choices,
    pub clock: Clock,
    pub environment: Environment,
    output: Option<Format>,
    /// The namespace of the kubeconfig's context, once it was read.
    context_namespace: Option<String>,
}

impl Session {
    pub fn new(global: &Global, environment: Environment) -> Result<Self, Error> {
        let colour = global
            .color
            .then_some(true)
            .or_else(|| global.no_color.then_some(false));
        Ok(Self {
            console: Console::of_the_process(colour, &environment),
            choices: Choices::of(global, &environment)?,
            clock: Clock::fixed_at(environment.get(NOW_VARIABLE)),
            environment,
            output: global.output.clone(),
            context_namespace: None,
        })
    }

    /// The form of the output.
    pub fn format(&self) -> Format {
        self.output.clone().unwrap_or(Format::Table)
    }

    /// The form that was asked for, if any was.
    pub const fn asked_format(&self) -> Option<&Format> {
        self.output.as_ref()
    }

    /// The namespace that counts.
    pub fn namespace(&self) -> String {
        let chosen = self.choices.namespace.value.clone();
        chosen
            .or_else(|| self.context_namespace.clone())
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
    }

    /// The way to the cluster.
    pub async fn connect(&mut self) -> Result<Transport, Error> {
        match self.choices.mode.value {
            Mode::Grpc => Grpc::connect(&self.choices).map(Transport::Grpc),
            Mode::Kube => {
                let (kube, namespace) = Kube::connect(&self.choices).await?;
                self.context_namespace = namespace;
                Ok(Transport::Kube(kube))
            }
        }
    }

    /// Asks a person. Where nobody can be asked, the flag that answers is named.
    pub fn confirm(&mut self, question: &str) -> Result<(), Error> {
        if self.choices.yes {
            return Ok(());
        }
        if self.choices.no_input || !std::io::stdin().is_terminal() {
            return Err(Error::Validation(format!(
                "{question} Nobody can be asked here: give --yes if that is meant"
            )));
        }
        self.console.note(&format!("{question} [y/N]"))?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Error::Validation("nothing was done".to_owned())),
        }
    }
}
