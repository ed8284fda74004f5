//! Volumes and files that cannot be mounted.

use jangar_api::reason::Reason;
use serde_json::{Value, json};

use super::{World, rejections::check};

#[test]
fn volumes_must_be_whole() {
    let volume = |fields: Value| World::minimal().with_volumes(&json!([fields]));
    let reason = Reason::InvalidVolume;
    check(vec![
        (
            volume(json!({"name": "v", "type": "pvc", "mountPath": "/v"})),
            reason.clone(),
            "spec.workload.volumes[0].claimName is not set, and a volume of type pvc is made of one: name the \
             PersistentVolumeClaim",
        ),
        (
            volume(json!({"name": "v", "type": "secret", "mountPath": "/v", "secretName": " "})),
            reason.clone(),
            "spec.workload.volumes[0].secretName is not set, and a volume of type secret is made of one: name the Secret",
        ),
        (
            volume(json!({"name": "v", "type": "hostPath", "mountPath": "/v"})),
            reason.clone(),
            "spec.workload.volumes[0].type is \"hostPath\": it must be emptyDir, pvc or secret",
        ),
        (
            volume(json!({"name": " ", "type": "emptyDir", "mountPath": "/v"})),
            reason.clone(),
            "spec.workload.volumes[0].name is blank: give the volume a name",
        ),
        (
            volume(json!({"name": "fix-1-home", "type": "emptyDir", "mountPath": "/v"})),
            reason.clone(),
            "spec.workload.volumes[0].name is \"fix-1-home\", which another volume of the pod has: choose another name",
        ),
        (
            World::minimal().with_volumes(&json!([
                {"name": "v", "type": "emptyDir", "mountPath": "/v"},
                {"name": "v", "type": "emptyDir", "mountPath": "/w"},
            ])),
            reason.clone(),
            "spec.workload.volumes[1].name is \"v\", which another volume of the pod has: choose another name",
        ),
        (
            volume(json!({"name": "v", "type": "emptyDir", "mountPath": "/workspace", "readOnly": true})),
            reason,
            "spec.workload.volumes[0] cannot be written to, and the runner writes below /workspace: mount it elsewhere",
        ),
    ]);
}

#[test]
fn mounts_must_not_be_in_each_others_way() {
    let at = |path: &str| {
        World::minimal().with_volumes(&json!([{"name": "v", "type": "emptyDir", "mountPath": path}]))
    };
    let input =
        |path: &str| World::minimal().with_provider(&json!({"inputFiles": [{"path": path, "content": "x"}]}));
    let reason = Reason::InvalidVolume;
    check(vec![
        (
            at("data"),
            reason.clone(),
            "spec.workload.volumes[0].mountPath is \"data\": it must be an absolute path without .. and colons, below /",
        ),
        (
            at("/"),
            reason.clone(),
            "spec.workload.volumes[0].mountPath is \"/\": it must be an absolute path without .. and colons, below /",
        ),
        (
            at("/workspace/run.json"),
            reason.clone(),
            "spec.workload.volumes[0].mountPath is \"/workspace/run.json\", and run.json is mounted there: choose another path",
        ),
        (
            at("/opt/agent-runner/bin"),
            reason.clone(),
            "spec.workload.volumes[0].mountPath is \"/opt/agent-runner/bin\", and agent-runner is mounted there: choose \
             another path",
        ),
        (
            World::minimal().with_volumes(&json!([
                {"name": "v", "type": "emptyDir", "mountPath": "/v"},
                {"name": "w", "type": "emptyDir", "mountPath": "/v/"},
            ])),
            reason.clone(),
            "spec.workload.volumes[1].mountPath is \"/v/\", and the volume \"v\" is mounted there: choose another path",
        ),
        (
            input("relative"),
            reason.clone(),
            "AgentProvider \"scripted\" spec.inputFiles[0].path is \"relative\": it must be an absolute path without .. and \
             colons, below /",
        ),
        (
            input("/workspace/agent-runner.json"),
            reason.clone(),
            "AgentProvider \"scripted\" spec.inputFiles[0].path is \"/workspace/agent-runner.json\", and agent-runner.json is \
             mounted there: choose another path",
        ),
        (
            input("/workspace/.codex/system-prompt.txt").with_run(&json!({
                "systemPromptRef": {"kind": "ConfigMap", "name": "prompts", "key": "p"},
            })),
            reason.clone(),
            "AgentProvider \"scripted\" spec.inputFiles[0].path is \"/workspace/.codex/system-prompt.txt\", and the system \
             prompt is mounted there: choose another path",
        ),
        (
            input("/v").with_volumes(&json!([{"name": "v", "type": "emptyDir", "mountPath": "/v/w"}])),
            reason,
            "spec.workload.volumes[0].mountPath is \"/v/w\", and AgentProvider \"scripted\" spec.inputFiles[0] is mounted \
             there: choose another path",
        ),
    ]);
}
