//! A new run, made once for each key whoever answers.

use jangar_api::Kind;
use serde_json::Value;

use super::Transport;
use crate::{error::Error, object::Object};

/// A run that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub kind: Kind,
    pub namespace: &'a str,
    /// The Agent, the Orchestration or the Tool.
    pub subject: &'a str,
    pub key: &'a str,
    /// The run as it would be created.
    pub object: &'a Value,
    /// Whether somebody gave it a name or labels of its own; otherwise all follows from the key and what is to be done.
    pub is_own: bool,
    /// The Budget that must not be used up.
    pub budget: Option<&'a str>,
    /// The SecretBinding that covers the Secrets of the run.
    pub secret_binding: Option<&'a str>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Submitted {
    Created(Object),
    /// The key was used before: this is what was made then.
    Before(Object),
}

impl Submission<'_> {
    /// The field that holds the key.
    pub const fn key_field(kind: Kind) -> &'static str {
        match kind {
            Kind::AgentRun => "idempotencyKey",
            _ => "deliveryId",
        }
    }

    /// What only a submission to the control plane looks at is not silently dropped.
    pub(super) fn without_policy(&self) -> Result<(), Error> {
        let given = [
            ("--budget", self.budget.is_some()),
            ("--secret-binding", self.secret_binding.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::Validation(format!(
                "{flag} is looked at by the control plane, when it makes the run itself: give --grpc, and no --name, --label or \
                 --tool; or leave {flag} out"
            ))),
            None => Ok(()),
        }
    }

    /// Creates it, or finds what the key made before.
    pub(super) async fn create_once(&self, transport: &Transport) -> Result<Submitted, Error> {
        let made = transport.create(self.kind, self.namespace, self.object).await?;
        if let Some(run) = made {
            return Ok(Submitted::Created(run));
        }
        let name = self
            .object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let known = transport.get(self.kind, self.namespace, name).await?;
        let key = known
            .value()
            .get("spec")
            .and_then(|spec| spec.get(Self::key_field(self.kind))?.as_str());
        if key == Some(self.key) {
            return Ok(Submitted::Before(known));
        }
        Err(Error::Validation(format!(
            "there is another {} called {name} in namespace {}: give another --name",
            self.kind.info().kind,
            self.namespace
        )))
    }
}
