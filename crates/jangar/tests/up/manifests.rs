//! `-f`: applied whole, or not at all.

use std::fs;

use jangar_api::agents::agent::Agent;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::process::Setup;

const GOOD: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: in-its-own, namespace: other}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: Agent
metadata: {name: fixer}
spec: {providerRef: {name: scripted}}
";

#[tokio::test]
async fn documents_of_all_files_are_there_when_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (
        directory.path().join("one.yaml"),
        directory.path().join("two.json"),
    );
    fs::write(&one, GOOD).unwrap();
    let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "in-the-default"}, "data": {"a": "b"}}"#;
    fs::write(&two, json).unwrap();
    let setup = Setup::on(&directory.path().join("data")).with(&[
        "--namespace",
        "team",
        "-f",
        one.to_str().unwrap(),
        "-f",
        two.to_str().unwrap(),
    ]);
    let up = setup.ready();
    let client = up.client().await;
    let agents: Api<Agent> = Api::namespaced(client.clone(), "team");
    assert_eq!(
        agents.get("fixer").await.unwrap().spec.provider_ref.name,
        "scripted"
    );
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    maps.get("in-the-default").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "other");
    let first = maps.get("in-its-own").await.unwrap();
    assert_eq!(up.stop(), Some(0));

    let up = setup.ready();
    let maps: Api<ConfigMap> = Api::namespaced(up.client().await, "other");
    let again = maps.get("in-its-own").await.unwrap();
    assert_eq!(
        again.metadata.resource_version, first.metadata.resource_version,
        "applying the same again changes nothing"
    );
}

#[tokio::test]
async fn one_bad_document_stops_the_start_and_nothing_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n---\n";
    let run = "apiVersion: agents.proompteng.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: bad}\nspec:";
    let file = directory.path().join("bad.yaml");
    for (text, expected) in [
        (
            "kind: ConfigMap".to_owned(),
            "document 2: apiVersion: it is missing",
        ),
        ("a: [".to_owned(), "document 2: "),
        (
            "apiVersion: agents.proompteng.ai/v1alpha1\nkind: AgentRum\nmetadata: {name: a}".to_owned(),
            "document 2 (AgentRum a): kind: AgentRum of agents.proompteng.ai/v1alpha1 is not served here; write one of",
        ),
        (
            "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}".to_owned(),
            "nothing of apiVersion example.com/v1 is",
        ),
        (
            format!("{run} {{agentRef: {{name: a}}, runtime: {{type: magic}}}}"),
            "spec.runtime.type: Unsupported value: \"magic\"",
        ),
        (
            format!("{run} {{agentRef: {{name: a}}, runtime: {{type: job}}, speed: 9}}"),
            "spec.speed",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: nowhere}".to_owned(),
            "document 2 (ConfigMap a): namespaces \"nowhere\" not found",
        ),
    ] {
        fs::write(&file, format!("{good}{text}\n")).unwrap();
        let (code, complaint) = Setup::on(&data).with(&["-f", file.to_str().unwrap()]).refused();
        assert_eq!(code, Some(2), "{complaint}");
        let place = format!("{}, document 2", file.display());
        assert!(
            complaint.contains(&place) && complaint.contains(expected),
            "{expected:?} is missing in: {complaint}"
        );
    }
    let up = Setup::on(&data).ready();
    let maps: Api<ConfigMap> = Api::default_namespaced(up.client().await);
    assert!(maps.get_opt("good").await.unwrap().is_none());
}
