//! Ways to be wrong on purpose, one at a time. A test that holds this server against Kubernetes plants one and must notice,
//! or it says nothing. No program has one, and no setting leads here.

/// What a server or a node overlooks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Defect {
    /// That a field belongs to another applier.
    Conflicts,
    /// That a map must not change.
    Immutability,
    /// The version that an object to be created has already.
    VersionOfNew,
    /// Defaults that a schema gives.
    Defaults,
    /// What is wrong with a definition.
    Definitions,
    /// What has to hold of an object that is to be deleted.
    Preconditions,
    /// The short names of a kind.
    ShortNames,
    /// That nothing must change.
    DryRun,
    /// How much of an object a table is to show.
    IncludeObject,
    /// Which failures end a Job.
    FailurePolicy,
    /// That a finished Job has had its time.
    TimeToLive,
    /// How long a page may be.
    Limit,
    /// Annotations.
    Annotations,
    /// What is left in a namespace.
    Content,
    /// Whom an owner waits for.
    BlockingDependents,
    /// That what nobody owns any more has to go.
    Orphans,
    /// That null takes away.
    Nulls,
    /// Rules about the past.
    OldSelf,
    /// That what was wrong before may stay.
    Ratcheting,
    /// What a schema allows.
    Schemas,
    /// That what a schema does not know is dropped.
    Pruning,
    /// Which labels are wanted.
    Labels,
    /// How unknown fields are to be treated.
    FieldValidation,
    /// Which version is written over.
    Versions,
    /// That a watch tells of deletions.
    Deletions,
    /// Where a watch begins.
    Start,
    /// What a container left as its last words.
    LastWords,
}

/// What is planted: nothing, unless a test says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defects(Option<Defect>);

impl From<Defect> for Defects {
    fn from(defect: Defect) -> Self {
        Self(Some(defect))
    }
}

impl Defects {
    pub(crate) fn has(self, defect: Defect) -> bool {
        self.0 == Some(defect)
    }
}
