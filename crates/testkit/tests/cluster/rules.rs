//! Every rule in CEL of the kinds of Jangar is evaluated by the real API server, and refuses what it is there to refuse.

use std::collections::BTreeSet;

use jangar_testkit::cluster::{Failure, Scene, play};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::kinds;

/// Specs that are accepted, of the kinds that have rules.
fn good_specs() -> [(&'static str, Value); 4] {
    [
        (
            "AgentRun",
            json!({"agentRef": {"name": "coder"}, "implementation": {"inline": {"text": "do it"}}, "runtime": {"type": "job"}}),
        ),
        (
            "OrchestrationRun",
            json!({"orchestrationRef": {"name": "release"}}),
        ),
        ("ToolRun", json!({"toolRef": {"name": "lint"}})),
        ("Agent", json!({"providerRef": {"name": "provider"}})),
    ]
}

/// Specs that a rule refuses as soon as they are written, as merge patches of a good one.
fn bad_specs() -> [(&'static str, Value); 3] {
    let prompts =
        json!({"systemPrompt": "be brief", "systemPromptRef": {"kind": "Secret", "name": "s", "key": "k"}});
    [
        ("AgentRun", json!({"implementation": null})),
        ("AgentRun", prompts.clone()),
        ("Agent", json!({"defaults": prompts})),
    ]
}

const RUNS: [&str; 3] = ["AgentRun", "OrchestrationRun", "ToolRun"];

fn good_spec(kind: &str) -> Value {
    let found = good_specs().into_iter().find(|(name, _)| *name == kind);
    found.expect("a spec of this kind").1
}

struct Stage<'a> {
    scene: &'a Scene,
    definitions: Vec<CustomResourceDefinition>,
    /// What rules said.
    heard: BTreeSet<String>,
}

impl Stage<'_> {
    fn api(&self, kind: &str) -> (Api<DynamicObject>, ApiResource) {
        let definition = self.definitions.iter().find(|each| each.spec.names.kind == kind);
        let spec = &definition.expect("the kind is defined").spec;
        let version = &spec.versions[0].name;
        let resource = ApiResource {
            group: spec.group.clone(),
            version: version.clone(),
            api_version: format!("{}/{version}", spec.group),
            kind: kind.to_owned(),
            plural: spec.names.plural.clone(),
        };
        (
            Api::namespaced_with(self.scene.admin(), self.scene.namespace(), &resource),
            resource,
        )
    }

    async fn create(&mut self, kind: &str, name: &str, spec: Value) -> Result<(), Failure> {
        let (api, resource) = self.api(kind);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        self.hear(api.create(&PostParams::default(), &object).await)
    }

    async fn change(&mut self, kind: &str, name: &str, spec: Value) -> Result<(), Failure> {
        let (api, _) = self.api(kind);
        let patch = Patch::Merge(json!({"spec": spec}));
        self.hear(api.patch(name, &PatchParams::default(), &patch).await)
    }

    /// Listens to a refusal; any other error is one.
    fn hear(&mut self, answer: kube::Result<DynamicObject>) -> Result<(), Failure> {
        match answer {
            Err(kube::Error::Api(status)) if status.code == 422 => {
                self.heard.insert(status.message.clone());
                Err(status.message.into())
            }
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }
}

/// The messages of all rules of a schema.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            let rules = object.get("x-kubernetes-validations").and_then(Value::as_array);
            let rules = rules.into_iter().flatten();
            found.extend(rules.filter_map(|rule| rule["message"].as_str().map(str::to_owned)));
            object.values().for_each(|value| messages(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| messages(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_rule_refuses_what_it_is_there_for() -> Result<(), Failure> {
    play("rules", async |scene| {
        let mut stage = Stage {
            scene,
            definitions: kinds::install().await?,
            heard: BTreeSet::new(),
        };
        for (kind, spec) in good_specs() {
            stage.create(kind, "good", spec).await?;
        }
        for (kind, patch) in bad_specs() {
            let refused = stage.change(kind, "good", patch.clone()).await;
            assert!(refused.is_err(), "{kind}: {patch} was accepted");
        }
        for kind in RUNS {
            let name = "a".repeat(64);
            assert!(
                stage.create(kind, &name, good_spec(kind)).await.is_err(),
                "{kind}: a long name"
            );

            // Before a run is accepted its spec may change, and afterwards only to cancel it.
            stage
                .change(kind, "good", json!({"parameters": {"a": "1"}}))
                .await?;
            let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
            stage
                .api(kind)
                .0
                .patch_status("good", &PatchParams::default(), &running)
                .await?;
            let refused = stage
                .change(kind, "good", json!({"parameters": {"a": "2"}}))
                .await;
            assert!(refused.is_err(), "{kind}: its spec was changed while it runs");
            stage.change(kind, "good", json!({"cancel": true})).await?;
        }

        let mut expected = BTreeSet::new();
        for definition in &stage.definitions {
            messages(&serde_json::to_value(definition)?, &mut expected);
        }
        let silent: Vec<_> = expected
            .iter()
            .filter(|message| !stage.heard.iter().any(|heard| heard.contains(*message)))
            .collect();
        assert!(
            silent.is_empty(),
            "no request shows that these rules are evaluated: {silent:#?}"
        );
        Ok(())
    })
    .await
}
