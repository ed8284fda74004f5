//! The nodes are there, ready, and in the zones that tests of spreading count on.

use std::collections::BTreeMap;

use jangar_testkit::cluster::{Bench, Failure, User};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};

const ZONE: &str = "topology.kubernetes.io/zone";

async fn nodes(kind: &str) -> Result<Vec<Node>, Failure> {
    let admin = Bench::here()?.client(&User::Admin).await?;
    let labels = ListParams::default().labels(&format!("jangar.test/node={kind}"));
    Ok(Api::<Node>::all(admin).list(&labels).await?.items)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test]
async fn fake_nodes_are_ready_two_to_a_zone() -> Result<(), Failure> {
    let nodes = nodes("fake").await?;

    let mut zones = BTreeMap::<String, u32>::new();
    for node in &nodes {
        assert!(
            is_ready(node),
            "{} is not ready: {:?}",
            node.name_any(),
            node.status
        );
        *zones.entry(node.labels()[ZONE].clone()).or_default() += 1;
    }

    let expected = ["zone-a", "zone-b", "zone-c"].map(|zone| (zone.to_owned(), 2));
    assert_eq!(zones, expected.into());
    Ok(())
}

#[tokio::test]
async fn the_real_node_is_a_kubelet_of_this_release() -> Result<(), Failure> {
    let name = Bench::here()?.real_node()?;

    let nodes = nodes("real").await?;

    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].name_any(), name);
    assert!(is_ready(&nodes[0]), "{:?}", nodes[0].status);
    let status = nodes[0].status.as_ref().expect("a status");
    let information = status.node_info.as_ref().expect("what the node is made of");
    assert!(
        information.kubelet_version.starts_with("v1.35."),
        "{}",
        information.kubelet_version
    );
    assert!(
        information.container_runtime_version.starts_with("containerd://"),
        "{}",
        information.container_runtime_version
    );
    Ok(())
}
