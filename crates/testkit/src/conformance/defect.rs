//! Servers that overlook something, one or more for each area of the corpus. If the corpus does not notice, it says nothing
//! about that area. What is overlooked is in kubelite itself, at the very place.

use kubelite::defects::Defect;

/// One way to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    pub area: &'static str,
    pub defect: Defect,
}

const fn planted(area: &'static str, defect: Defect) -> Planted {
    Planted { area, defect }
}

#[rustfmt::skip] // It is read as a table.
pub const DEFECTS: &[Planted] = &[
    planted("apply", Defect::Conflicts),
    planted("builtins", Defect::Immutability),
    planted("create", Defect::VersionOfNew),
    planted("defaulting", Defect::Defaults),
    planted("defaulting", Defect::Pruning),
    planted("definitions", Defect::Definitions),
    planted("deletion", Defect::Preconditions),
    planted("discovery", Defect::ShortNames),
    planted("dry-run", Defect::DryRun),
    planted("forms", Defect::IncludeObject),
    planted("jobs", Defect::FailurePolicy),
    planted("jobs", Defect::TimeToLive),
    planted("list", Defect::Limit),
    planted("metadata", Defect::Annotations),
    planted("namespaces", Defect::Content),
    planted("owners", Defect::BlockingDependents),
    planted("owners", Defect::Orphans),
    planted("patch", Defect::Nulls),
    planted("pods", Defect::LastWords),
    planted("rules", Defect::OldSelf),
    planted("rules", Defect::Ratcheting),
    planted("schema", Defect::Schemas),
    planted("selectors", Defect::Labels),
    planted("strict", Defect::FieldValidation),
    planted("update", Defect::Versions),
    planted("watch", Defect::Deletions),
    planted("watch", Defect::Start),
];
