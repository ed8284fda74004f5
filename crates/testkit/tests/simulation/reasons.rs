//! Which reasons the scenarios come to, for the end of an AgentRun and for a wait, and where the others are tested.
//!
//! Every reason that there is stands in one of the lists. Whoever adds one has to say what it is, and a scenario that comes to
//! another end, or to another wait, than is written here is noticed.

use std::{collections::BTreeSet, fs, path::Path};

use jangar_api::reason::Reason;

use crate::cleans;

/// The reasons with which AgentRuns end where nothing goes wrong beside what the scenario has.
const ENDS_PLAYED: [&str; 72] = [
    "CancelTimedOut",
    "Cancelled",
    "Completed",
    "Disrupted",
    "Duplicate",
    "EndpointNotAllowed",
    "Failed",
    "ImageBlocked",
    "ImageNotAllowed",
    "ImageUnavailable",
    "InputsTooLarge",
    "InvalidBranch",
    "InvalidContract",
    "InvalidRuntimeConfig",
    "InvalidSpec",
    "InvalidSystemPromptRef",
    "InvalidTemplate",
    "InvalidVolume",
    "JobFailed",
    "JobMissing",
    "JobRejected",
    "LabelBlocked",
    "LabelNotAllowed",
    "MissingAgent",
    "MissingBinary",
    "MissingEndpoint",
    "MissingImplementation",
    "MissingMemory",
    "MissingProvider",
    "MissingProviderRef",
    "MissingRepository",
    "MissingRequiredLabels",
    "MissingRequiredMetadata",
    "MissingSystemPromptRef",
    "MissingTemporalConfig",
    "MissingText",
    "MissingVcsAuth",
    "MissingVcsProvider",
    "MissingWorkflowSteps",
    "MissingWorkloadImage",
    "NameTaken",
    "NodeLost",
    "ParameterValueTooLarge",
    "ParametersTooLarge",
    "PodSecurityNotAllowed",
    "PriorityClassNotAllowed",
    "SecretBlocked",
    "SecretKeyMissing",
    "SecretNotAllowed",
    "SecretNotFound",
    "ServiceAccountNotAllowed",
    "SpecImmutableViolation",
    "Stopped",
    "SubmitFailed",
    "SubmitUnknown",
    "TemporalError",
    "Terminated",
    "TimedOut",
    "UnsupportedRuntime",
    "UnsupportedVcsAuth",
    "VcsAuthUnavailable",
    "VcsCapabilityDenied",
    "VcsPolicyDenied",
    "VcsProvidersDisabled",
    "VcsUnavailable",
    "WorkflowJobDeleted",
    "WorkflowJobMissing",
    "WorkflowStepDuplicate",
    "WorkflowStepFailed",
    "WorkflowStepMissingName",
    "WorkflowStepRetriesExhausted",
    "WorkflowStepTimedOut",
];

/// The reasons with which AgentRuns end in no scenario, by what keeps them out of a simulation. Each has a test of the engine that names
/// it.
const ENDS_ELSEWHERE: [(&str, &[&str]); 2] = [
    (
        "the schema refuses it: only what is older than the bounds of the schema ends so",
        &[
            "AcceptanceCriteriaTooLong",
            "DescriptionTooLarge",
            "SummaryTooLong",
            "SystemPromptTooLong",
            "TextTooLarge",
        ],
    ),
    (
        "the schema refuses what could not be read: only what another version has stored is such",
        &["UnreadableReference"],
    ),
];

/// What AgentRuns wait for where nothing goes wrong beside what the scenario has, and go on from.
const WAITS_PLAYED: [&str; 19] = [
    "ConcurrencyLimit",
    "ConfigurationUnavailable",
    "EndpointUnavailable",
    "ImageUnavailable",
    "JobForbidden",
    "MissingAgent",
    "MissingImplementation",
    "MissingMemory",
    "MissingProvider",
    "MissingSystemPromptRef",
    "MissingVcsProvider",
    "NameTaken",
    "PodWaiting",
    "PreviousJobTerminating",
    "QueueLimit",
    "RateLimit",
    "SecretKeyMissing",
    "SecretNotFound",
    "VcsAuthUnavailable",
];

/// What an AgentRun may wait for, and no scenario does: what the schema keeps out. A test of the engine plays it.
const WAITS_ELSEWHERE: [&str; 1] = ["UnreadableReference"];

/// Words that neither end an AgentRun nor hold it up, by what they are about.
const NO_ENDS: [(&str, &[&str]); 8] = [
    (
        "all is well, or goes on",
        &[
            "Active",
            "Cancelling",
            "Degraded",
            "InProgress",
            "None",
            "NotReady",
            "Progressing",
            "Ready",
            "Reconciled",
            "RetryBackoff",
            "Running",
            "Submitted",
            "Valid",
            "ValidSpec",
            "WithinLimits",
        ],
    ),
    (
        "told beside an end",
        &[
            "AlreadyFailed",
            "AlreadySucceeded",
            "CancelDisabled",
            "InvalidRetain",
            "JobOutlivesRun",
            "NotArchived",
            "ResultUnavailable",
            "SpreadCountsOthers",
            "StatusRefused",
            "VcsDisabled",
        ],
    ),
    (
        "the schema refuses such a run",
        &["InvalidSystemPrompt", "MissingRuntime", "ParameterNotString"],
    ),
    (
        "artifacts, which are left out of the status",
        &[
            "InlineUrlDisallowed",
            "MissingName",
            "TooManyArtifacts",
            "UrlTooLong",
        ],
    ),
    (
        "what became of the work at the forge",
        &[
            "BranchMissing",
            "Delivered",
            "DeliveryUnknown",
            "NothingChanged",
            "PullRequestMissing",
            "PushFailed",
            "PushRejected",
        ],
    ),
    (
        "providers, sources and signals",
        &[
            "AuthReady",
            "ConfigMapKeyMissing",
            "ConfigMapNotFound",
            "DeprecatedAuth",
            "InvalidPayload",
            "MissingAppAuth",
            "MissingSecretRef",
            "MissingType",
            "NoAuth",
            "SecretResolved",
            "SignalMissing",
            "Synced",
            "UnsupportedAuth",
            "UnsupportedProvider",
            "WebhookDisabled",
            "WebhookFailed",
            "WebhookReady",
            "WebhookRetryDropped",
            "WebhookSynced",
        ],
    ),
    (
        "tools",
        &["InvalidOutputs", "InvalidTool", "MissingTool", "OutputsTooLarge"],
    ),
    (
        "orchestrations and their steps",
        &[
            "AgentRunFailed",
            "AgentRunMissing",
            "ApprovalDenied",
            "ApprovalExpired",
            "ApprovalPending",
            "ChildForbidden",
            "ChildRejected",
            "ConditionFalse",
            "DependencyCancelled",
            "DependencyCycle",
            "DependencyFailed",
            "DependencySkipped",
            "DuplicateStep",
            "EntrypointMissing",
            "InvalidCondition",
            "InvalidDependency",
            "InvalidStep",
            "MissingApprovalPolicy",
            "MissingDependency",
            "MissingOrchestration",
            "MissingOrchestrationRef",
            "MissingSteps",
            "OrchestrationTooLarge",
            "RecursionRefused",
            "RetriesExhausted",
            "RunCancelled",
            "RunStopping",
            "SignalPending",
            "StepCancelled",
            "StepError",
            "StepFailed",
            "StepMissingKind",
            "StepMissingName",
            "StepTimedOut",
            "SubOrchestrationFailed",
            "SubOrchestrationMissing",
            "ToolRunFailed",
            "ToolRunMissing",
            "UnreadableDefinition",
            "UnsupportedStep",
        ],
    ),
];

#[test]
fn scenarios_end_with_the_listed_reasons_and_no_others() {
    let played: BTreeSet<&str> = cleans()
        .iter()
        .flat_map(|clean| clean.reasons.iter().map(String::as_str))
        .collect();
    assert_eq!(
        played.into_iter().collect::<Vec<_>>(),
        ENDS_PLAYED,
        "the reasons with which scenarios end"
    );
}

#[test]
fn scenarios_come_to_the_listed_waits_and_no_others() {
    let played: BTreeSet<&str> = cleans()
        .iter()
        .flat_map(|clean| clean.waits.iter().map(String::as_str))
        .collect();
    assert_eq!(
        played.into_iter().collect::<Vec<_>>(),
        WAITS_PLAYED,
        "what runs of scenarios waited for"
    );
}

#[test]
fn every_reason_is_played_or_tested_elsewhere_or_no_end_of_a_run() {
    let ends = || ENDS_PLAYED.into_iter().chain(flat(&ENDS_ELSEWHERE));
    let waits = || WAITS_PLAYED.into_iter().chain(WAITS_ELSEWHERE);
    let no_ends = || flat(&NO_ENDS);
    for (what, list) in [
        ("ends", ends().collect::<Vec<_>>()),
        ("waits", waits().collect()),
        ("other words", no_ends().collect()),
    ] {
        let different: BTreeSet<&&str> = list.iter().collect();
        assert_eq!(different.len(), list.len(), "one of the {what} is listed twice");
    }
    let of_runs: BTreeSet<&str> = ends().chain(waits()).collect();
    let others: BTreeSet<&str> = no_ends().collect();
    let both: Vec<&&str> = of_runs.intersection(&others).collect();
    assert!(both.is_empty(), "{both:?} end a run, or hold it up, and do not");
    let listed: BTreeSet<&str> = of_runs.union(&others).copied().collect();
    let known: BTreeSet<&str> = Reason::KNOWN.iter().map(Reason::as_str).collect();
    let (new, gone) = (&known - &listed, &listed - &known);
    assert!(new.is_empty(), "say in one of the lists what {new:?} are");
    assert!(gone.is_empty(), "there are no reasons {gone:?}");
}

#[test]
fn every_end_and_wait_that_is_not_played_is_named_by_a_test_of_the_engine() {
    let mut tests = String::new();
    read_tests(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src"),
        false,
        &mut tests,
    );
    let untested: Vec<&str> = flat(&ENDS_ELSEWHERE)
        .chain(WAITS_ELSEWHERE)
        .filter(|reason| {
            let word = format!("Reason::{reason}");
            let mut ends = tests.match_indices(&word).map(|(at, _)| at + word.len());
            !ends.any(|end| !tests[end..].starts_with(char::is_alphanumeric))
        })
        .collect();
    assert!(untested.is_empty(), "no test of the engine names {untested:?}");
}

fn flat(lists: &'static [(&str, &[&str])]) -> impl Iterator<Item = &'static str> {
    lists.iter().flat_map(|(_, reasons)| reasons.iter().copied())
}

/// The text of all files below a directory that are tests: those in a directory `tests`, and those of that name.
fn read_tests(directory: &Path, inside: bool, text: &mut String) {
    for entry in fs::read_dir(directory).expect("the sources are there") {
        let path = entry.expect("the sources can be read").path();
        let named = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() {
            read_tests(&path, inside || named, text);
        } else if inside || named {
            text.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}
