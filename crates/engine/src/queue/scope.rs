//! What limits apply to: one agent, one repository, one namespace, or everything.

use std::fmt;

use serde::Serialize;

/// Something that runs are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Scope {
    Agent {
        namespace: String,
        name: String,
    },
    /// In all namespaces together, in lower case.
    Repository(String),
    Namespace(String),
    /// All namespaces that are looked after.
    Cluster,
}

impl Scope {
    /// One word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent",
            Self::Repository(_) => "repository",
            Self::Namespace(_) => "namespace",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent { name, .. } => write!(f, "Agent {name}"),
            Self::Repository(name) => write!(f, "repository {name}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

/// What a run needs slots of. The limits do not tell two runs of the same lane apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Lane {
    pub namespace: String,
    pub agent: String,
    /// In lower case.
    pub repository: Option<String>,
}

impl Lane {
    pub fn agent_scope(&self) -> Scope {
        Scope::Agent {
            namespace: self.namespace.clone(),
            name: self.agent.clone(),
        }
    }

    pub fn repository_scope(&self) -> Option<Scope> {
        self.repository.clone().map(Scope::Repository)
    }

    pub fn namespace_scope(&self) -> Scope {
        Scope::Namespace(self.namespace.clone())
    }

    /// All that it is counted by, in the order in which limits are looked at.
    pub fn scopes(&self) -> impl Iterator<Item = Scope> + use<> {
        [
            Some(self.agent_scope()),
            self.repository_scope(),
            Some(self.namespace_scope()),
            Some(Scope::Cluster),
        ]
        .into_iter()
        .flatten()
    }

    /// By what runs take turns: the repository, or the agent where there is none.
    pub fn turn(&self) -> Scope {
        self.repository_scope().unwrap_or_else(|| self.agent_scope())
    }
}
