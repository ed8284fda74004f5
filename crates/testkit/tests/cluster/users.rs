//! A client is who it says, and may do what roles allow that user and nothing else.

use jangar_testkit::cluster::{Failure, User, play, until};
use k8s_openapi::api::{
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

fn binding(subject: &Value) -> RoleBinding {
    let binding = json!({
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    });
    serde_json::from_value(binding).expect("a RoleBinding")
}

async fn reads_and_does_not_write(
    name: &str,
    user: impl Fn(&str) -> User,
    subject: Value,
) -> Result<(), Failure> {
    play(name, async |scene| {
        let user = user(scene.namespace());
        let client = scene.client(&user).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), scene.namespace());
        let refused = maps
            .list(&ListParams::default())
            .await
            .expect_err("a user without a role");
        assert!(
            refused
                .to_string()
                .contains(&format!("User \"{}\" cannot list", user.name())),
            "{refused}"
        );

        let bindings = scene.api::<RoleBinding>();
        bindings
            .create(&PostParams::default(), &binding(&subject))
            .await?;
        // The authorizer learns of a role by a watch of its own, so it takes a moment.
        until(&maps, "kube-root-ca.crt", "to be readable", |_| true).await?;

        let elsewhere: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        assert!(
            elsewhere.list(&ListParams::default()).await.is_err(),
            "the role is of one namespace"
        );
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "mine"}}))?;
        let refused = maps.create(&PostParams::default(), &map).await;
        assert!(refused.is_err(), "the role is for reading");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_named_user_has_the_rights_of_its_roles() -> Result<(), Failure> {
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"});
    reads_and_does_not_write("named-user", |_| User::named("ada"), subject).await
}

#[tokio::test]
async fn a_service_account_has_the_rights_of_its_groups() -> Result<(), Failure> {
    // Every service account is in this group, and no person is.
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"});
    let user = |namespace: &str| User::ServiceAccount {
        namespace: namespace.to_owned(),
        name: "default".to_owned(),
    };
    reads_and_does_not_write("service-account", user, subject).await
}

#[tokio::test]
async fn every_test_has_a_namespace_to_itself() -> Result<(), Failure> {
    play("same-name", async |one| {
        play("same-name", async |other| {
            assert_ne!(one.namespace(), other.namespace());
            assert_eq!(
                other
                    .api::<ServiceAccount>()
                    .list(&ListParams::default())
                    .await?
                    .items
                    .len(),
                1
            );
            Ok(())
        })
        .await
    })
    .await
}
