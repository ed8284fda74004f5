//! Branches, addresses and pull requests.

use jangar_api::reason::Reason;
use serde_json::json;

use super::Forge;
use crate::vcs::{Begun, WantedBranch, elsewhere, wanted_branch};

#[test]
fn the_branch_comes_from_the_run_the_template_or_the_name_of_the_run() {
    let head = |forge: Forge| forge.ready().head.expect("a branch");
    let template = || {
        Forge::github().provider(
            "/defaults/branchTemplate",
            json!("fix/{{ issueNumber }}-{{ agentRun.name }}"),
        )
    };

    assert_eq!(head(Forge::github()), "agents/mend");
    assert_eq!(head(template()), "fix/7-mend");
    assert_eq!(head(template().run("/parameters/headRef", json!("mine"))), "mine");
    let every_root = "{{ parameters.issueNumber }}/{{ metadata.repository }}/{{ event.issueNumber }}/{{ agentRun.namespace }}";
    let forge = Forge::github().provider("/defaults/branchTemplate", json!(every_root));
    assert_eq!(head(forge), "7/example/adder/7/agents");
}

#[test]
fn the_work_starts_from_what_the_run_says_or_else_from_the_default() {
    let base = |forge: Forge| forge.ready().base;
    assert_eq!(base(Forge::github()).as_deref(), Some("main"));
    assert_eq!(
        base(Forge::github().run("/parameters/base", json!("next"))).as_deref(),
        Some("next")
    );
    assert_eq!(base(Forge::github().provider("/defaults", json!({}))), None);
}

#[test]
fn two_runs_on_one_branch_are_told_apart_only_where_the_provider_says_how() {
    let mut forge = Forge::github();
    forge.rival = Some("other");
    assert_eq!(forge.ready().head.as_deref(), Some("agents/mend"));

    let with_suffix = |forge: Forge| {
        forge.provider(
            "/defaults/branchConflictSuffixTemplate",
            json!("{{ agentRun.name }}"),
        )
    };
    assert_eq!(
        with_suffix(forge).ready().head.as_deref(),
        Some("agents/mend-mend")
    );
    assert_eq!(
        with_suffix(Forge::github()).ready().head.as_deref(),
        Some("agents/mend")
    );
}

#[test]
fn a_later_attempt_keeps_its_branch_whatever_others_do() {
    let mut forge = Forge::github().provider("/defaults/branchConflictSuffixTemplate", json!("two"));
    forge.rival = Some("other");
    forge.begun = Some(Begun::Attempt("agents/mend"));
    assert_eq!(forge.ready().head.as_deref(), Some("agents/mend"));
}

#[test]
fn a_later_step_goes_on_with_the_branch_before_unless_it_has_one_of_its_own() {
    let head = |repository, before, rival, named: Option<&str>| {
        let mut forge = Forge::github().provider("/defaults/branchConflictSuffixTemplate", json!("two"));
        forge.rival = rival;
        forge.begun = Some(Begun::Step {
            repository,
            head: before,
        });
        let forge = match named {
            Some(named) => forge.run("/parameters/head", json!(named)),
            None => forge,
        };
        forge.ready().head.expect("a branch")
    };
    let same = "Example/Adder";
    for rival in [None, Some("other")] {
        assert_eq!(head(same, "agents/mend", rival, None), "agents/mend");
        assert_eq!(head(same, "agents/mend-two", rival, None), "agents/mend-two");
    }
    assert_eq!(head(same, "agents/mend", None, Some("mine")), "mine");
    assert_eq!(head(same, "agents/mend-2", None, None), "agents/mend");
    assert_eq!(
        head("example/other", "agents/mend-two", None, None),
        "agents/mend"
    );
}

#[test]
fn an_endpoint_is_told_that_it_gets_no_repository_from_here() {
    let told = |forge: Forge| {
        let (run, agent) = (super::object(&forge.run), super::object(&forge.agent));
        elsewhere("an endpoint", &run, &super::object(&forge.implementation), &agent)
            .map(|told| told.map(|why| why.reason))
            .map_err(|why| why.reason)
    };
    let mode = |mode: &str| Forge::github().run("/vcsPolicy/mode", json!(mode));
    assert_eq!(told(Forge::github()), Ok(Some(Reason::VcsUnavailable)));
    assert_eq!(told(Forge::github().required()), Err(Reason::VcsUnavailable));
    assert_eq!(told(mode("none").required()), Ok(Some(Reason::VcsDisabled)));
    assert_eq!(told(mode("both")), Err(Reason::InvalidSpec));
    assert_eq!(told(Forge::github().run("/vcsRef", json!(null))), Ok(None));
}

#[test]
fn a_branch_is_looked_up_only_for_providers_that_want_to_know() {
    let wanted = |forge: &Forge| {
        let run = super::object(&forge.run);
        let work = super::object(&forge.implementation);
        wanted_branch(&run, &work, &super::object(&forge.provider))
    };
    let plain = Forge::github().run("/parameters/repository", json!("Example/Adder"));
    assert_eq!(wanted(&plain), None);
    let asks = plain.provider("/defaults/branchConflictSuffixTemplate", json!("x"));
    assert_eq!(
        wanted(&asks),
        Some(WantedBranch::new("example/adder", "agents/mend"))
    );
}

#[test]
fn names_that_git_does_not_take_are_refused() {
    let legal = |name: &str| super::super::branch::legal(name, "head").is_ok();
    for name in ["fix", "fix/7-adder", "a.b/c_d", "größe", "a@b", "x{y"] {
        assert!(legal(name), "{name}");
    }
    let long = "x".repeat(201);
    for name in [
        "", "/a", "a/", "a//b", "-x", ".a", "a/.b", "a..b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[b",
        "a\\b", "a.lock", "a.lock/b", "a.", "@", "HEAD", "a@{1}", "a\nb", "a\"b", &long,
    ] {
        assert!(!legal(name), "{name:?}");
    }
}

#[test]
fn a_token_goes_to_no_other_server_than_those_that_are_given() {
    let addresses = |provider: &str, given: serde_json::Value| {
        let mut forge = Forge::github().provider("/provider", json!(provider));
        for (field, value) in given.as_object().expect("an object") {
            forge = forge.provider(&format!("/{field}"), value.clone());
        }
        let vcs = forge.ready();
        (
            vcs.addresses.clone.unwrap_or_default(),
            vcs.addresses.api.unwrap_or_default(),
        )
    };
    let own = "https://git.example.com";
    for (provider, given, clone, api) in [
        (
            "github",
            json!({}),
            "https://github.com",
            "https://api.github.com",
        ),
        (
            "gitlab",
            json!({}),
            "https://gitlab.com",
            "https://gitlab.com/api/v4",
        ),
        (
            "bitbucket",
            json!({}),
            "https://bitbucket.org",
            "https://api.bitbucket.org/2.0",
        ),
        (
            "github",
            json!({"cloneBaseUrl": "https://github.com/"}),
            "https://github.com",
            "https://api.github.com",
        ),
        (
            "github",
            json!({"cloneBaseUrl": own}),
            own,
            "https://git.example.com/api/v3",
        ),
        (
            "gitlab",
            json!({"webBaseUrl": own}),
            own,
            "https://git.example.com/api/v4",
        ),
        (
            "gitea",
            json!({"cloneBaseUrl": own}),
            own,
            "https://git.example.com/api/v1",
        ),
        ("bitbucket", json!({"cloneBaseUrl": own}), own, ""),
        ("generic", json!({"cloneBaseUrl": own}), own, ""),
    ] {
        assert_eq!(
            addresses(provider, given.clone()),
            (clone.to_owned(), api.to_owned()),
            "{provider} {given}"
        );
    }
}

#[test]
fn a_pull_request_is_opened_unless_somebody_says_no_or_nobody_could() {
    let opens = |forge: Forge| forge.ready().pull_requests;
    assert!(opens(Forge::github()));
    assert!(!opens(
        Forge::github().provider("/capabilities/pullRequests", json!(false))
    ));
    assert!(!opens(
        Forge::github().provider("/defaults/pullRequest/enabled", json!(false))
    ));
    let ssh = json!({"ssh": {"privateKeySecretRef": {"name": "forge-key"}}});
    assert!(
        !opens(Forge::github().provider("/auth", ssh)),
        "an API takes no SSH key"
    );
    let own = json!("https://git.example.com");
    assert!(!opens(
        Forge::github()
            .provider("/provider", json!("generic"))
            .provider("/cloneBaseUrl", own)
    ));
}
