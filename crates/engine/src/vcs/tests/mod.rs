//! What a run gets of version control, and what is said where it gets nothing.

mod branches;
mod deliveries;
mod providers;
mod reasons;

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::agents::{
    agent::Agent, agent_run::AgentRun, implementation_spec::ImplementationSpecSpec,
    version_control_provider::VersionControlProvider,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Begun, Request, Resolution, Unclear, VersionControl, resolve};
use crate::{
    decision::{KeyHolder, Keys, Sight},
    settings::Settings,
};

/// A run with a repository at a forge, as values that a test changes.
#[derive(Clone, Debug)]
pub(crate) struct Forge {
    pub(crate) run: Value,
    pub(crate) agent: Value,
    pub(crate) implementation: Value,
    pub(crate) provider: Value,
    pub(crate) sight: Option<fn(Arc<VersionControlProvider>) -> Sight<VersionControlProvider>>,
    pub(crate) keys: BTreeMap<KeyHolder, Keys>,
    pub(crate) settings: Settings,
    pub(crate) rival: Option<&'static str>,
    pub(crate) begun: Option<Begun<'static>>,
}

fn object<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).expect("a legal object")
}

/// Sets a value at a pointer, with the objects on the way.
fn put(target: &mut Value, pointer: &str, value: Value) {
    let mut at = target;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

pub(crate) fn keys(names: &[&str]) -> Keys {
    Keys::Of(
        names
            .iter()
            .map(|name| ((*name).to_owned(), "hash".to_owned()))
            .collect(),
    )
}

impl Forge {
    /// A run that may write to `example/adder` at GitHub with a token.
    pub(crate) fn github() -> Self {
        Self {
            run: json!({
                "metadata": {"name": "mend", "namespace": "agents", "uid": "run-1"},
                "spec": {
                    "agentRef": {"name": "fixer"}, "runtime": {"type": "job"},
                    "vcsRef": {"name": "forge"},
                    "parameters": {"repository": "example/adder", "issueNumber": "7"},
                },
            }),
            agent: json!({"metadata": {"name": "fixer"}, "spec": {"providerRef": {"name": "scripted"}}}),
            implementation: json!({"text": "Mend it."}),
            provider: json!({
                "metadata": {"name": "forge", "namespace": "agents", "generation": 1},
                "spec": {
                    "provider": "github",
                    "auth": {"method": "token", "token": {"secretRef": {"name": "forge-token"}}},
                    "defaults": {"baseBranch": "main"},
                },
            }),
            sight: Some(Sight::Seen),
            keys: BTreeMap::from([
                (KeyHolder::Secret("app-key".to_owned()), keys(&["privateKey"])),
                (KeyHolder::Secret("forge-token".to_owned()), keys(&["token"])),
                (
                    KeyHolder::Secret("forge-key".to_owned()),
                    keys(&["ssh-privatekey"]),
                ),
                (KeyHolder::ConfigMap("hosts".to_owned()), keys(&["known_hosts"])),
            ]),
            settings: Settings::default(),
            rival: None,
            begun: None,
        }
    }

    pub(crate) fn provider(mut self, pointer: &str, value: Value) -> Self {
        put(&mut self.provider, &format!("/spec{pointer}"), value);
        self
    }

    pub(crate) fn run(mut self, pointer: &str, value: Value) -> Self {
        put(&mut self.run, &format!("/spec{pointer}"), value);
        self
    }

    pub(crate) fn agent(mut self, pointer: &str, value: Value) -> Self {
        put(&mut self.agent, &format!("/spec{pointer}"), value);
        self
    }

    pub(crate) fn required(self) -> Self {
        self.run("/vcsPolicy/required", json!(true))
    }

    pub(crate) fn sight(&self) -> Option<Sight<VersionControlProvider>> {
        self.sight.map(|sight| sight(Arc::new(object(&self.provider))))
    }

    pub(crate) fn resolve(&self) -> Result<Resolution, Unclear> {
        let run: AgentRun = object(&self.run);
        let agent: Agent = object(&self.agent);
        let implementation: ImplementationSpecSpec = object(&self.implementation);
        let sight = self.sight();
        let request = Request {
            run: &run,
            agent: &agent,
            implementation: &implementation,
            provider: sight.as_ref(),
            keys: &self.keys,
            rival: self.rival,
            begun: self.begun,
        };
        resolve(&request, &self.settings)
    }

    pub(crate) fn ready(&self) -> VersionControl {
        match self.resolve() {
            Ok(Resolution::Ready(vcs)) => *vcs,
            other => panic!("it has no repository: {other:#?}"),
        }
    }
}
