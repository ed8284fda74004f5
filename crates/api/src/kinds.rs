//! The table of the nineteen kinds. Everything that treats kinds alike starts here: no other place lists them.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, Resource};

use crate::{
    agents::{
        agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
        implementation_source::ImplementationSource, implementation_spec::ImplementationSpec, memory::Memory,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    artifacts::Artifact,
    budgets::Budget,
    crd,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    schedules::Schedule,
    security::SecretBinding,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
    workspaces::Workspace,
};

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        /// One of the kinds of Jangar.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($kind),+
        }

        impl Kind {
            /// All kinds, in the order in which they are listed and generated.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The definition as it is derived from the Rust type, before [`crd::finish`].
            fn derived_crd(self) -> CustomResourceDefinition {
                match self {
                    $(Self::$kind => $kind::crd()),+
                }
            }

            fn make_info(self) -> KindInfo {
                match self {
                    $(Self::$kind => KindInfo::of::<$kind>()),+
                }
            }
        }
    };
}

kinds! {
    Agent,
    AgentRun,
    AgentProvider,
    ImplementationSpec,
    ImplementationSource,
    VersionControlProvider,
    Memory,
    Orchestration,
    OrchestrationRun,
    ApprovalPolicy,
    Budget,
    SecretBinding,
    Signal,
    SignalDelivery,
    Schedule,
    Tool,
    ToolRun,
    Workspace,
    Artifact,
}

/// What a kind is called. All are namespaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindInfo {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: &'static [&'static str],
}

impl KindInfo {
    fn of<K>() -> Self
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + CustomResourceExt,
    {
        let kind = K::kind(&()).into_owned();
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            singular: kind.to_ascii_lowercase(),
            kind,
            short_names: K::shortnames(),
        }
    }
}

/// The order of the entries is that of [`Kind::ALL`], hence of the discriminants.
static INFO: LazyLock<Vec<KindInfo>> =
    LazyLock::new(|| Kind::ALL.iter().map(|kind| kind.make_info()).collect());

impl Kind {
    /// What the kind is called.
    pub fn info(self) -> &'static KindInfo {
        // In bounds: there is one entry for each variant.
        &INFO[self as usize]
    }

    /// Whether objects of this kind are runs: they are accepted, do something, and end.
    pub fn is_run(self) -> bool {
        matches!(self, Self::AgentRun | Self::OrchestrationRun | Self::ToolRun)
    }

    /// Further words for the kind on a command line, beside its names in Kubernetes. They are public: scripts use them.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::AgentRun => &["run", "runs"],
            Self::AgentProvider => &["provider", "providers"],
            Self::ImplementationSpec => &["spec", "specs", "impls"],
            Self::ImplementationSource => &["source", "sources"],
            Self::VersionControlProvider => &["vcs"],
            Self::ApprovalPolicy => &["approval", "approvals", "policy", "policies"],
            Self::Agent
            | Self::Memory
            | Self::Orchestration
            | Self::OrchestrationRun
            | Self::Budget
            | Self::SecretBinding
            | Self::Signal
            | Self::SignalDelivery
            | Self::Schedule
            | Self::Tool
            | Self::ToolRun
            | Self::Workspace
            | Self::Artifact => &[],
        }
    }

    /// Every word that means this kind: singular, plural, short names and aliases, all in lower case.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let info = self.info();
        [info.singular.as_str(), info.plural.as_str()]
            .into_iter()
            .chain(info.short_names.iter().copied())
            .chain(self.aliases().iter().copied())
    }

    /// The definition that teaches a Kubernetes API server this kind.
    pub fn crd(self) -> CustomResourceDefinition {
        crd::finish(self, self.derived_crd())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_nineteen_and_each_finds_its_own_names() {
        assert_eq!(Kind::ALL.len(), 19);
        for kind in Kind::ALL {
            assert_eq!(kind.info().kind, format!("{kind:?}"));
        }
    }

    #[test]
    fn names_in_the_table_are_those_of_the_definition() {
        for kind in Kind::ALL {
            let (info, crd) = (kind.info(), kind.crd());
            assert_eq!(crd.spec.group, info.group);
            assert_eq!(crd.spec.scope, "Namespaced");
            assert_eq!(crd.spec.names.kind, info.kind);
            assert_eq!(crd.spec.names.plural, info.plural);
            assert_eq!(crd.spec.names.singular.as_ref(), Some(&info.singular));
            assert_eq!(
                crd.spec.names.short_names.as_deref().unwrap_or_default(),
                info.short_names
            );
            assert_eq!(
                crd.spec
                    .versions
                    .iter()
                    .map(|v| v.name.as_str())
                    .collect::<Vec<_>>(),
                ["v1alpha1"]
            );
            assert_eq!(info.version, "v1alpha1");
            assert_eq!(crd.metadata.name, Some(format!("{}.{}", info.plural, info.group)));
        }
    }

    #[test]
    fn no_word_means_two_kinds() {
        let mut seen = BTreeSet::new();
        for word in Kind::ALL.iter().flat_map(|kind| kind.words()) {
            assert!(seen.insert(word), "{word} is used twice");
            assert_eq!(word, word.to_ascii_lowercase());
        }
    }

    #[test]
    fn short_names_are_unique_and_leave_kubernetes_its_own() {
        const TAKEN: [&str; 34] = [
            "bgpp", "cj", "cm", "cr", "crd", "crds", "cs", "csr", "deploy", "ds", "ep", "ev", "hpa", "ing",
            "limits", "netpol", "no", "ns", "pc", "pdb", "po", "psp", "pv", "pvc", "quota", "rc", "rs", "sa",
            "sc", "sts", "svc", "vac", "cc", "gtw",
        ];
        let mut seen = BTreeSet::new();
        for kind in Kind::ALL {
            let info = kind.info();
            assert!(!info.short_names.is_empty(), "{} has no short name", info.kind);
            for name in info
                .short_names
                .iter()
                .copied()
                .chain([info.plural.as_str(), info.singular.as_str()])
            {
                assert!(seen.insert(name.to_owned()), "{name} is used twice");
                assert!(!TAKEN.contains(&name), "{name} belongs to Kubernetes");
            }
        }
    }
}
