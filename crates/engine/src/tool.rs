//! Tool: whether it can be run.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::{
    phase::ObjectPhase,
    reason::Reason,
    tools::{Tool, ToolSpec, ToolStatus},
    values::Int32,
};
use jiff::Timestamp;

use crate::{
    conditions::touched,
    decision::{Decision, Plan, Rejection},
    job,
    settings::Settings,
    template, validity,
};

/// The most mistakes that are told at once: a condition has only so much room, and whoever mends ten looks again.
const TOLD_MAX: usize = 10;
/// The variable that tells the program where `run.json` is.
const RESERVED: &str = "TOOL_RUN_SPEC";
/// What a template of a Tool may refer to.
const ROOTS: &[&str] = &["parameters", "tool", "toolRun"];

/// What is known about a Tool.
#[derive(Clone, Debug)]
pub struct Observed {
    pub tool: Arc<Tool>,
}

/// Says whether the Tool can be run, and everything that is wrong with it.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<ToolStatus> {
    let tool = &observed.tool;
    let forbidden = job::check_tool(&tool.spec, "", &settings.policy);
    let mut wrong = mistakes(&tool.spec);
    wrong.extend(forbidden.into_iter().map(|rejection| rejection.message));
    let before = tool.status.clone().unwrap_or_default();
    let (phase, checked) = match all_told(&wrong) {
        None => (ObjectPhase::Ready, Ok(())),
        Some(message) => (
            ObjectPhase::Invalid,
            Err(Rejection::new(Reason::InvalidSpec, message)),
        ),
    };
    let generation = tool.metadata.generation;
    let next = ToolStatus {
        common: validity::report_as(&Reason::Valid, &before.common, generation, checked, now),
        phase: Some(phase),
    };
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

/// Everything that is wrong with a Tool by itself, in one sentence; `None` if nothing is.
pub(crate) fn all_told(wrong: &[String]) -> Option<String> {
    let told: Vec<&str> = wrong.iter().take(TOLD_MAX).map(String::as_str).collect();
    let more = wrong.len().saturating_sub(TOLD_MAX);
    let more = if more == 0 {
        String::new()
    } else {
        format!("; and {more} more")
    };
    (!told.is_empty()).then(|| format!("{}{more}", told.join("; ")))
}

/// What is wrong with a Tool, whoever runs it.
pub(crate) fn mistakes(spec: &ToolSpec) -> Vec<String> {
    let mut wrong = Vec::new();
    if is_blank(spec.image.as_deref()) {
        wrong.push("spec.image is not set: name the image that has the program".to_owned());
    }
    if spec.command.is_empty() && spec.args.is_empty() {
        wrong.push(
            "spec.command and spec.args are both empty: say which program is started, or what it is given"
                .to_owned(),
        );
    }
    wrong.extend(bad_templates(spec));
    wrong.extend(bad_variables(spec));
    for (field, number) in [
        ("timeoutSeconds", spec.timeout_seconds),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished),
    ] {
        if let Some(number) = number.map(Int32::get).filter(|number| *number < 0) {
            wrong.push(format!(
                "spec.{field} is {number}: it must be 0 or more, or be left out"
            ));
        }
    }
    if let Some(directory) = &spec.working_dir
        && !directory.trim().is_empty()
        && !directory.trim().starts_with('/')
    {
        wrong.push(format!("spec.workingDir is {directory:?}: it must begin with /"));
    }
    for (index, secret) in spec.secrets.iter().enumerate() {
        if secret.trim().is_empty() {
            wrong.push(format!(
                "spec.secrets[{index}] is blank: name a Secret of this namespace, or take it out"
            ));
        }
    }
    wrong
}

fn is_blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}

/// The templates that cannot be meant as they are written.
fn bad_templates(spec: &ToolSpec) -> Vec<String> {
    let listed = |field: &'static str, texts: &'_ [String]| -> Vec<(String, String)> {
        let texts = texts.iter().enumerate();
        texts
            .map(|(index, text)| (format!("spec.{field}[{index}]"), text.clone()))
            .collect()
    };
    let env = spec.env.iter().enumerate();
    let env = env.map(|(index, variable)| (format!("spec.env[{index}].value"), variable.value.clone()));
    let texts = listed("command", &spec.command)
        .into_iter()
        .chain(listed("args", &spec.args))
        .chain(env);
    texts
        .filter_map(|(field, text)| {
            let problem = match template::paths(&text) {
                Err(error) => error.to_string(),
                Ok(paths) => {
                    let root = |path: &&str| path.split('.').next().is_some_and(|root| ROOTS.contains(&root));
                    let unknown = paths.into_iter().find(|path| !root(path))?;
                    format!("it refers to {unknown}, and there are only {}", ROOTS.join(", "))
                }
            };
            Some(format!("{field}: {problem}"))
        })
        .collect()
}

fn bad_variables(spec: &ToolSpec) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for (index, variable) in spec.env.iter().enumerate() {
        let name = variable.name.trim();
        let legal = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let problem = if name.is_empty() {
            "is blank: give the variable a name"
        } else if !legal || name.starts_with(|c: char| c.is_ascii_digit()) {
            "is no name of a variable: use letters, digits, _, - and ., and no digit first"
        } else if name == RESERVED {
            "is set for every tool: choose another name"
        } else if names.insert(name) {
            continue;
        } else {
            "is there twice: take one out"
        };
        wrong.push(format!("spec.env[{index}].name {name:?} {problem}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use jangar_api::condition::{ConditionStatus, ConditionType};
    use serde_json::{Value, json};

    use super::*;

    fn planned(spec: &Value, settings: &Settings) -> ToolStatus {
        let tool: Tool =
            serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": spec})).expect("a Tool");
        let observed = Observed { tool: Arc::new(tool) };
        match plan(&observed, settings, Timestamp::UNIX_EPOCH) {
            Decision::Act(plan) => plan.status.expect("a first status"),
            Decision::Look(questions) => panic!("{questions:?}"),
        }
    }

    fn ready(status: &ToolStatus) -> (ConditionStatus, Reason, String) {
        let ready = status.common.condition(&ConditionType::Ready).expect("set");
        let told = status.common.condition(&ConditionType::Degraded).expect("set");
        (ready.status.clone(), ready.reason.clone(), told.message.clone())
    }

    #[test]
    fn a_tool_with_an_image_and_something_to_start_is_ready() {
        for spec in [
            json!({"image": "busybox", "command": ["true"]}),
            json!({"image": "busybox", "args": ["{{ parameters.x }} {{ tool.name }} {{toolRun.uid}}"]}),
        ] {
            let status = planned(&spec, &Settings::default());
            assert_eq!(status.phase, Some(ObjectPhase::Ready));
            let (status, reason, _) = ready(&status);
            assert_eq!((status, reason), (ConditionStatus::True, Reason::Valid));
        }
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let spec = json!({
            "args": ["{{ open", "{{ secrets.x }}"],
            "env": [
                {"name": "", "value": ""}, {"name": "A", "value": ""}, {"name": "A", "value": ""},
                {"name": "a=b", "value": ""}, {"name": "TOOL_RUN_SPEC", "value": ""},
            ],
            "timeoutSeconds": -1,
            "workingDir": "src",
            "secrets": [" "],
        });
        let status = planned(&spec, &Settings::default());
        assert_eq!(status.phase, Some(ObjectPhase::Invalid));
        let (is_ready, reason, message) = ready(&status);
        assert_eq!((is_ready, reason), (ConditionStatus::False, Reason::InvalidSpec));
        for field in [
            "spec.image is not set",
            "spec.args[0]:",
            "spec.args[1]: it refers to secrets.x",
            "spec.env[0].name \"\" is blank",
            "spec.env[2].name \"A\" is there twice",
            "spec.env[3].name \"a=b\" is no name",
            "spec.env[4].name \"TOOL_RUN_SPEC\" is set",
            "spec.timeoutSeconds is -1",
            "spec.workingDir is \"src\"",
            "spec.secrets[0] is blank",
        ] {
            assert!(message.contains(field), "{field} in {message}");
        }
    }

    #[test]
    fn more_mistakes_than_fit_are_counted() {
        let env: Vec<Value> = (0..20).map(|_| json!({"name": "", "value": ""})).collect();
        let status = planned(
            &json!({"image": "a", "args": ["b"], "env": env}),
            &Settings::default(),
        );
        let (_, _, message) = ready(&status);
        assert!(message.ends_with("; and 10 more"), "{message}");
    }

    #[test]
    fn what_the_operator_forbids_is_a_mistake_of_the_tool() {
        let mut settings = Settings::default();
        settings.policy.images_allowed = vec!["ghcr.io/*".to_owned()];
        settings.policy.blocked_secrets = BTreeSet::from(["root-password".to_owned()]);
        settings.policy.service_accounts_allowed = vec!["builder".to_owned()];
        let spec = json!({
            "image": "docker.io/evil", "args": ["x"], "secrets": ["root-password"], "serviceAccount": "admin",
        });
        let (_, _, message) = ready(&planned(&spec, &settings));
        for field in ["spec.image", "spec.secrets[0]", "spec.serviceAccount"] {
            assert!(message.contains(field), "{field} in {message}");
        }
    }
}
