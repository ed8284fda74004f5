//! Runs that work on a repository, or wait for what they need to do so.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    End, Scenario, Step,
    runs::{OBEYS, SECOND, create, exits, failed, object, run, story, succeeded},
};
use crate::{
    forges::ForgeScript,
    node::{Script, Scripts},
};

const MINUTE: Duration = Duration::from_mins(1);

pub(super) fn all() -> Vec<Scenario> {
    vec![
        provider_last(),
        provider_missing(),
        token_missing(),
        work_arrives(),
        app_retried(),
        app_deleted(),
        app_in_steps(),
        app_refused(),
        app_refused_at_first(),
        app_refused_meanwhile(),
        forge_silent(),
        forge_answers_late(),
        branch_taken(),
    ]
}

/// The forge is declared after the run that works there.
fn provider_last() -> Scenario {
    let steps = vec![
        create(on_repository("one", false)),
        Step::Wait(2 * SECOND),
        forge(&json!({"method": "none"})),
    ];
    story("forge-last", steps, vec![("one", succeeded())])
}

/// A run insists on a forge that nobody declares.
fn provider_missing() -> Scenario {
    let steps = vec![create(on_repository("one", true))];
    story("forge-missing", steps, vec![("one", failed())])
}

/// There is no Secret with the token: the run waits for it, and goes on without version control.
fn token_missing() -> Scenario {
    let auth = json!({"method": "token", "token": {"secretRef": {"name": "forge-token"}}});
    let steps = vec![forge(&auth), create(on_repository("one", false))];
    story("token-missing", steps, vec![("one", succeeded())])
}

/// A GitHub App gives the token, the work is pushed, and the forge is asked whether it arrived.
fn work_arrives() -> Scenario {
    let steps = vec![app_key(), forge(&app()), create(writing("one"))];
    story("work-arrives", steps, vec![("one", succeeded())])
}

/// Each attempt has a token of its own.
fn app_retried() -> Scenario {
    let mut run = writing("one");
    run["spec"]["runtime"]["config"]["backoffLimit"] = 1.into();
    Scenario {
        scripts: Scripts::default().with("one", 1, exits(1)),
        ..story(
            "app-retried",
            vec![app_key(), forge(&app()), create(run)],
            vec![("one", succeeded())],
        )
    }
}

/// The run is deleted while it works: nothing of its token is left.
fn app_deleted() -> Scenario {
    let steps = vec![
        app_key(),
        forge(&app()),
        create(writing("one")),
        Step::AwaitAccepted("one"),
        Step::AwaitWork("one", 1),
        Step::Wait(5 * SECOND),
        Step::Delete("one"),
    ];
    Scenario {
        scripts: Scripts::default().with("one", 1, Script::Runs { on_term: OBEYS }),
        ..story("app-deleted", steps, vec![("one", End::Gone)])
    }
}

/// Two steps on one branch, each with tokens of its own; the second takes two attempts.
fn app_in_steps() -> Scenario {
    let mut run = writing("one");
    run["spec"]["runtime"]["type"] = "workflow".into();
    run["spec"]["workflow"] = json!({"steps": [{"name": "plan"}, {"name": "build", "retries": 1}]});
    Scenario {
        scripts: Scripts::default().with_step("one", 2, 1, exits(1)),
        ..story(
            "app-in-steps",
            vec![app_key(), forge(&app()), create(run)],
            vec![("one", succeeded())],
        )
    }
}

/// No token is ever given.
fn app_refused() -> Scenario {
    Scenario {
        forge: ForgeScript {
            no_tokens: Duration::ZERO..Duration::MAX,
            ..ForgeScript::default()
        },
        ..story("app-refused", writing_with_app(), vec![("one", failed())])
    }
}

/// The first token is given after a while.
fn app_refused_at_first() -> Scenario {
    Scenario {
        forge: ForgeScript {
            no_tokens: Duration::ZERO..MINUTE,
            ..ForgeScript::default()
        },
        ..story(
            "app-refused-at-first",
            writing_with_app(),
            vec![("one", succeeded())],
        )
    }
}

/// The token has to be renewed twice, and for some time it cannot be.
fn app_refused_meanwhile() -> Scenario {
    let long = Script::Exits {
        after: 16 * MINUTE,
        code: 0,
        on_term: OBEYS,
    };
    Scenario {
        forge: ForgeScript {
            tokens_last: 10 * MINUTE,
            no_tokens: 4 * MINUTE..7 * MINUTE,
            ..ForgeScript::default()
        },
        scripts: Scripts::default().with("one", 1, long),
        ..story(
            "app-refused-meanwhile",
            writing_with_app(),
            vec![("one", succeeded())],
        )
    }
}

/// Nobody ever says whether the work arrived, which is no fault of the run.
fn forge_silent() -> Scenario {
    Scenario {
        forge: ForgeScript {
            no_answers: Duration::ZERO..Duration::MAX,
            ..ForgeScript::default()
        },
        ..story("forge-silent", writing_with_app(), vec![("one", succeeded())])
    }
}

fn forge_answers_late() -> Scenario {
    Scenario {
        forge: ForgeScript {
            no_answers: Duration::ZERO..2 * MINUTE,
            ..ForgeScript::default()
        },
        ..story(
            "forge-answers-late",
            writing_with_app(),
            vec![("one", succeeded())],
        )
    }
}

/// Two runs want one branch at the same time: the second gets another one.
fn branch_taken() -> Scenario {
    let mut provider = provider_of(&app());
    provider["spec"]["defaults"]["branchConflictSuffixTemplate"] = "{{ agentRun.name }}".into();
    let long = Script::Exits {
        after: 16 * MINUTE,
        code: 0,
        on_term: OBEYS,
    };
    let steps = vec![
        app_key(),
        Step::Create("versioncontrolproviders", provider),
        create(writing("one")),
        Step::AwaitRunning("one"),
        create(writing("two")),
    ];
    Scenario {
        scripts: Scripts::default().with("one", 1, long),
        ..story(
            "branch-taken",
            steps,
            vec![("one", succeeded()), ("two", succeeded())],
        )
    }
}

/// A run that may write, with a token of the App.
fn writing_with_app() -> Vec<Step> {
    vec![app_key(), forge(&app()), create(writing("one"))]
}

/// A run that may write.
fn writing(name: &str) -> Value {
    let mut run = on_repository(name, true);
    run["spec"]["vcsPolicy"]["mode"] = "read-write".into();
    run["spec"]["parameters"]["head"] = "fix/adder".into();
    run
}

fn app() -> Value {
    json!({"method": "app", "app": {
        "appId": 17, "installationId": 42, "privateKeySecretRef": {"name": "app-key"},
    }})
}

fn app_key() -> Step {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app-key"},
        "stringData": {"privateKey": "the key of the App"},
    });
    Step::Create("secrets", secret)
}

pub(super) fn on_repository(name: &str, required: bool) -> Value {
    let mut run = run(name);
    run["spec"]["vcsRef"] = json!({"name": "forge"});
    run["spec"]["vcsPolicy"] = json!({"required": required, "mode": "read-only"});
    run["spec"]["parameters"]["repository"] = "example/adder".into();
    run
}

fn forge(auth: &Value) -> Step {
    Step::Create("versioncontrolproviders", provider_of(auth))
}

fn provider_of(auth: &Value) -> Value {
    let spec = json!({"provider": "github", "auth": auth, "defaults": {"baseBranch": "main"}});
    object("VersionControlProvider", "forge", &spec)
}
