//! Every reason why a run has no repository, with its message and its remedy: what becomes of the run that insists, and of
//! the one that does not.

use jangar_api::{agents::agent_run::VcsMode, reason::Reason};
use serde_json::json;

use super::{Forge, keys};
use crate::{
    decision::{KeyHolder, Keys, Sight},
    vcs::{Access, Resolution, Unclear},
};

/// What becomes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fails,
    GoesOnWithout,
    Waits,
    ReadOnly,
}

struct Case {
    name: &'static str,
    forge: Forge,
    /// What becomes of the run that insists on version control.
    insists: (Fate, Reason),
    /// What becomes of the run that does not.
    does_not: (Fate, Reason),
    /// What the message names: the field, its value, and the remedy.
    named: &'static [&'static str],
}

fn both(name: &'static str, forge: Forge, reason: Reason, named: &'static [&'static str]) -> Case {
    Case {
        name,
        forge,
        insists: (Fate::Fails, reason.clone()),
        does_not: (Fate::GoesOnWithout, reason),
        named,
    }
}

fn always_fails(name: &'static str, forge: Forge, reason: Reason, named: &'static [&'static str]) -> Case {
    Case {
        does_not: (Fate::Fails, reason.clone()),
        ..both(name, forge, reason, named)
    }
}

fn waits(name: &'static str, forge: Forge, reason: Reason, named: &'static [&'static str]) -> Case {
    Case {
        insists: (Fate::Waits, reason.clone()),
        does_not: (Fate::Waits, reason.clone()),
        ..both(name, forge, reason, named)
    }
}

fn github() -> Forge {
    Forge::github()
}

fn changed(change: impl FnOnce(&mut Forge)) -> Forge {
    let mut forge = github();
    change(&mut forge);
    forge
}

fn of_repositories() -> Vec<Case> {
    vec![
        both(
            "no repository",
            github().run("/parameters", json!({})),
            Reason::MissingRepository,
            &[
                "VersionControlProvider forge",
                "set spec.parameters.repository to owner/name",
            ],
        ),
        both(
            "an address instead of a repository",
            github().run(
                "/parameters/repository",
                json!("https://github.com/example/adder"),
            ),
            Reason::MissingRepository,
            &["\"https://github.com/example/adder\"", "owner/name"],
        ),
        both(
            "a name that a pattern does not match and the forge takes for one that it does",
            github().run("/parameters/repository", json!("example/adder.git")),
            Reason::MissingRepository,
            &["example/adder.git", "without .git"],
        ),
        always_fails(
            "a repository that the operator does not allow",
            changed(|forge| forge.settings.vcs.repositories_allowed = vec!["other/*".to_owned()])
                .provider("/repositoryPolicy/allow", json!(["example/*"])),
            Reason::VcsPolicyDenied,
            &[
                "example/adder",
                "other/*",
                "JANGAR_GITHUB_REPOS_ALLOWED",
                "add it there",
            ],
        ),
        always_fails(
            "a repository that the provider denies, in other letters and although it is allowed",
            github().provider(
                "/repositoryPolicy",
                json!({"deny": ["Example/A*"], "allow": ["example/adder"]}),
            ),
            Reason::VcsPolicyDenied,
            &[
                "example/adder",
                "spec.repositoryPolicy.deny",
                "Example/A*",
                "take the pattern out",
            ],
        ),
        always_fails(
            "a repository that the provider does not allow",
            github().provider("/repositoryPolicy/allow", json!(["example/other", "team/*"])),
            Reason::VcsPolicyDenied,
            &[
                "example/adder",
                "spec.repositoryPolicy.allow",
                "example/other, team/*",
            ],
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn of_credentials() -> Vec<Case> {
    vec![
        both(
            "a method that the forge does not take",
            github()
                .provider("/provider", json!("bitbucket"))
                .provider("/auth/method", json!("app")),
            Reason::UnsupportedVcsAuth,
            &[
                "VersionControlProvider forge",
                "spec.auth.method is app",
                "token, ssh or none",
            ],
        ),
        both(
            "a kind of token that the forge does not take",
            github().provider("/auth/token/type", json!("api_token")),
            Reason::UnsupportedVcsAuth,
            &[
                "spec.auth.token.type is api_token",
                "fine_grained, access_token or pat",
            ],
        ),
        both(
            "a method without its secret",
            github().provider("/auth", json!({"method": "ssh"})),
            Reason::MissingVcsAuth,
            &[
                "spec.auth.method is ssh",
                "spec.auth.ssh.privateKeySecretRef.name is not set",
            ],
        ),
        both(
            "a secret that no run may use",
            changed(|forge| {
                forge
                    .settings
                    .policy
                    .blocked_secrets
                    .insert("forge-token".to_owned());
            }),
            Reason::SecretBlocked,
            &[
                "spec.auth.token.secretRef.name",
                "forge-token",
                "use another Secret",
            ],
        ),
        both(
            "a secret that the agent does not allow",
            github().agent("/security", json!({"allowedSecrets": ["other"]})),
            Reason::SecretNotAllowed,
            &[
                "spec.auth.token.secretRef.name",
                "forge-token",
                "spec.security.allowedSecrets",
            ],
        ),
        waits(
            "a secret that is not there",
            changed(|forge| {
                forge
                    .keys
                    .insert(KeyHolder::Secret("forge-token".to_owned()), Keys::Absent);
            }),
            Reason::VcsAuthUnavailable,
            &[
                "spec.auth.token.secretRef.name is Secret forge-token",
                "none of that name",
            ],
        ),
        waits(
            "a secret without the key",
            changed(|forge| {
                forge
                    .keys
                    .insert(KeyHolder::Secret("forge-token".to_owned()), keys(&["other"]));
            }),
            Reason::VcsAuthUnavailable,
            &["Secret forge-token, which has no key token"],
        ),
        Case {
            does_not: (Fate::ReadOnly, Reason::None),
            ..both(
                "no credentials, and the run would write",
                github().provider("/auth", json!({"method": "none"})),
                Reason::VcsAuthUnavailable,
                &[
                    "spec.auth of VersionControlProvider forge gives no credentials",
                    "read-only",
                ],
            )
        },
    ]
}

fn of_providers() -> Vec<Case> {
    vec![
        both(
            "switched off by the operator",
            changed(|forge| forge.settings.vcs.enabled = false),
            Reason::VcsProvidersDisabled,
            &[
                "vcsRef.name is forge",
                "JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED",
                "set it to true",
            ],
        ),
        waits(
            "a provider that is not there",
            changed(|forge| forge.sight = Some(|_| Sight::Absent)),
            Reason::MissingVcsProvider,
            &["vcsRef.name is forge", "no VersionControlProvider of that name"],
        ),
        waits(
            "a provider that cannot be read",
            changed(|forge| forge.sight = Some(|_| Sight::Illegible("spec.provider".to_owned()))),
            Reason::UnreadableReference,
            &["VersionControlProvider forge cannot be read (spec.provider)"],
        ),
        Case {
            does_not: (Fate::GoesOnWithout, Reason::VcsDisabled),
            ..both(
                "a forge that cannot be read from",
                github().provider("/capabilities/read", json!(false)),
                Reason::VcsCapabilityDenied,
                &[
                    "spec.capabilities.read of VersionControlProvider forge is false",
                    "set it to true",
                ],
            )
        },
        Case {
            does_not: (Fate::ReadOnly, Reason::None),
            ..both(
                "a forge that cannot be written to",
                github().provider("/capabilities/write", json!(false)),
                Reason::VcsCapabilityDenied,
                &[
                    "spec.capabilities.write",
                    "spec.vcsPolicy.mode of the run to read-only",
                ],
            )
        },
        both(
            "a forge without an address",
            github().provider("/provider", json!("gitea")),
            Reason::VcsUnavailable,
            &["spec.cloneBaseUrl is not set", "gitea"],
        ),
        always_fails(
            "a branch that git does not take",
            github().run("/parameters/head", json!("fix the adder")),
            Reason::InvalidBranch,
            &["spec.parameters.head", "\"fix the adder\"", "letters, digits"],
        ),
        always_fails(
            "a branch that is the one the work starts from",
            github().run("/parameters/head", json!("main")),
            Reason::InvalidBranch,
            &["main, the branch it starts from", "spec.parameters.head"],
        ),
        always_fails(
            "a template that cannot be rendered",
            github().provider("/defaults/branchTemplate", json!("fix/{{ issueNumber")),
            Reason::InvalidTemplate,
            &["spec.defaults.branchTemplate", "add }}"],
        ),
    ]
}

fn fate(forge: &Forge) -> (Fate, Reason, String) {
    match forge.resolve() {
        Ok(Resolution::Ready(vcs)) => {
            assert_eq!(vcs.access, Access::ReadOnly);
            (Fate::ReadOnly, Reason::None, String::new())
        }
        Ok(Resolution::Skipped(why)) => (Fate::GoesOnWithout, why.reason, why.message),
        Err(Unclear::Lacking { why, .. }) => (Fate::Waits, why.reason, why.message),
        Err(Unclear::Wrong(why)) => (Fate::Fails, why.reason, why.message),
        other => panic!("{other:#?}"),
    }
}

#[test]
fn every_reason_names_the_field_its_value_and_the_remedy() {
    for case in [of_repositories(), of_credentials(), of_providers()].concat_all() {
        for (forge, expected) in [
            (case.forge.clone().required(), &case.insists),
            (case.forge, &case.does_not),
        ] {
            let (fate, reason, message) = fate(&forge);
            assert_eq!(
                (fate, &reason),
                (expected.0, &expected.1),
                "{}: {message}",
                case.name
            );
            if fate == Fate::ReadOnly {
                continue;
            }
            for part in case.named {
                assert!(
                    message.contains(part),
                    "{}: {part} is not in: {message}",
                    case.name
                );
            }
        }
    }
}

trait ConcatAll {
    fn concat_all(self) -> Vec<Case>;
}

impl<const N: usize> ConcatAll for [Vec<Case>; N] {
    fn concat_all(self) -> Vec<Case> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn a_run_that_nobody_gave_a_provider_has_nothing_to_do_with_version_control() {
    let mut forge = github();
    forge.sight = None;
    forge = forge.run("/vcsRef", json!(null));
    assert_eq!(forge.resolve(), Ok(Resolution::Unasked));

    let Err(Unclear::Wrong(why)) = forge.required().resolve() else {
        panic!("it insists");
    };
    assert_eq!(why.reason, Reason::MissingVcsProvider);
    assert!(
        why.message.contains("set spec.vcsRef.name of the run"),
        "{}",
        why.message
    );
}

#[test]
fn mode_none_leaves_version_control_out_whatever_else_is_said() {
    let forge = github().run("/vcsPolicy", json!({"mode": "none", "required": true}));
    let Ok(Resolution::Skipped(why)) = forge.resolve() else {
        panic!("it is left out");
    };
    assert_eq!(why.reason, Reason::VcsDisabled);
}

#[test]
fn a_run_that_only_reads_gets_what_it_asks_for_although_the_forge_could_be_written_to() {
    let vcs = github()
        .required()
        .run("/vcsPolicy/mode", json!("read-only"))
        .ready();
    assert_eq!(vcs.access.mode(), VcsMode::ReadOnly);
    assert_eq!(vcs.head, None);
    assert!(!vcs.pull_requests);
}

#[test]
fn the_run_names_its_provider_before_its_implementation_and_that_before_its_agent() {
    let named = |run: bool, implementation: bool| {
        let mut forge = github().agent("/vcsRef", json!({"name": "of-agent"}));
        if !run {
            forge = forge.run("/vcsRef", json!(null));
        }
        if implementation {
            forge.implementation["vcsRef"] = json!({"name": "of-implementation"});
        }
        forge.ready().provider
    };
    assert_eq!(named(true, true), "forge");
    assert_eq!(named(false, true), "of-implementation");
    assert_eq!(named(false, false), "of-agent");
}

#[test]
fn what_we_may_not_look_at_is_left_to_whoever_mounts_it() {
    let mut forge = github();
    forge
        .keys
        .insert(KeyHolder::Secret("forge-token".to_owned()), Keys::Forbidden);
    assert_eq!(forge.ready().access, Access::ReadWrite);
}
