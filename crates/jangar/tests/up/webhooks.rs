//! Webhooks on `jangar up`: a delivery makes a spec, and its controller and the control plane share its status.

use jangar_api::{
    agents::{
        implementation_source::ImplementationSource,
        implementation_spec::{ImplementationSpec, ImplementationSpecStatus},
    },
    condition::{ConditionStatus, ConditionType},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, runtime::wait::await_condition};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    objects::create,
    process::{PATIENCE, Setup},
};

const BODY: &str = r#"{"action":"opened","repository":{"full_name":"example/adder"},"issue":{"number":7,"title":"Add two numbers","body":"It should add.","state":"open","labels":[{"name":"agent"}],"updated_at":"2026-03-01T12:00:00Z"}}"#;
/// Of that body, with the secret below; `openssl dgst -sha256 -hmac` says the same.
const SIGNATURE: &str = "182428a1b58567b95cf1d09efdac1b7e7db33417607ba1b5f4cda76d7cefbfaf";
/// `a-secret-of-the-forge`.
const SECRET: &str = "YS1zZWNyZXQtb2YtdGhlLWZvcmdl";

async fn deliver(address: &str) -> String {
    let request = format!(
        "POST /api/agents/implementation-sources/webhooks/github HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nX-GitHub-Event: issues\r\nX-GitHub-Delivery: d-1\r\n\
         X-Hub-Signature-256: sha256={SIGNATURE}\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn is_shared(spec: Option<&ImplementationSpec>) -> bool {
    let status = spec.and_then(|spec| spec.status.as_ref());
    status.is_some_and(|status: &ImplementationSpecStatus| {
        let ready = status.common.condition(&ConditionType::Ready);
        ready.is_some_and(|ready| ready.status == ConditionStatus::True)
            && status.source_version.as_deref() == Some("2026-03-01T12:00:00Z")
    })
}

#[tokio::test]
async fn a_delivery_makes_a_spec_and_both_say_what_they_know_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forge"}, "data": {"token": SECRET}});
    let _: Secret = create(&client, secret).await;
    let _: ImplementationSource = create(
        &client,
        json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "ImplementationSource", "metadata": {"name": "adder"},
            "spec": {"provider": "github", "auth": {"secretRef": {"name": "forge"}}, "webhook": {"enabled": true},
                     "scope": {"repository": "example/adder"}},
        }),
    )
    .await;
    let (_, rest) = up.line.split_once("control plane on http://").unwrap();
    let address = rest.split([' ', ';']).next().unwrap().to_owned();

    // The control plane knows no source before its cache does, and says so, as it does if it could not write in time: whoever sends
    // repeats it, and what was written all the same is recognised.
    let taken = async {
        let mut perhaps_written = false;
        loop {
            let answer = deliver(&address).await;
            if answer.starts_with("HTTP/1.1 200") {
                return (answer, perhaps_written);
            }
            let in_time = answer.starts_with("HTTP/1.1 401");
            assert!(in_time || answer.starts_with("HTTP/1.1 503"), "{answer}");
            perhaps_written |= !in_time;
        }
    };
    let (answer, perhaps_written) = timeout(PATIENCE, taken).await.unwrap();
    let recognised = perhaps_written && answer.contains("\"deduped\":1");
    assert!(recognised || answer.contains("\"synced\":1"), "{answer}");

    let specs: Api<ImplementationSpec> = Api::default_namespaced(client);
    let shared = await_condition(specs, "example-adder-7-impl", is_shared);
    let spec = timeout(PATIENCE, shared).await.unwrap().unwrap().unwrap();
    assert_eq!(spec.spec.text, "It should add.");
}
