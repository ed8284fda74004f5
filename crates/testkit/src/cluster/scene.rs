//! One test's part of the cluster.

use std::{any::Any, error::Error, fmt, panic::AssertUnwindSafe, path::PathBuf};

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ObjectMeta, PostParams},
    core::NamespaceResourceScope,
};

use super::{Bench, User, report, wait};

/// What a test ends with if it does not hold: any error at all.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A namespace of the cluster that one test has to itself.
#[derive(Clone)]
pub struct Scene {
    bench: Bench,
    name: String,
    namespace: String,
    admin: Client,
}

impl fmt::Debug for Scene {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Scene")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Scene {
    pub fn bench(&self) -> &Bench {
        &self.bench
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Where what is worth keeping of this test is written down.
    pub fn reports(&self) -> PathBuf {
        self.bench.reports.join(&self.name)
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Client {
        self.admin.clone()
    }

    pub async fn client(&self, user: &User) -> Result<Client, Failure> {
        Ok(self.bench.client(user).await?)
    }

    /// The objects of one kind in the namespace of this test, as the administrator sees them.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.admin(), &self.namespace)
    }
}

/// Plays a test in a namespace of its own. `name` is a name for the namespace and for the report if the test fails.
///
/// A test fails with an error or a panic. Either way all that is in the namespace is written down before it is removed.
pub async fn play<T>(name: &str, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Scene) -> Result<(), Failure>,
{
    let bench = Bench::here()?;
    let admin = bench.client(&User::Admin).await?;
    // Benches are reused, and the namespace of an earlier run may still be on its way out.
    let namespace = format!("{name}-{:06x}", rand::random::<u32>() >> 8);
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let metadata = ObjectMeta {
        name: Some(namespace.clone()),
        ..ObjectMeta::default()
    };
    let object = Namespace {
        metadata,
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &object).await?;
    let scene = Scene {
        bench,
        name: name.to_owned(),
        namespace,
        admin,
    };
    let outcome = AssertUnwindSafe(prepared(&scene, test)).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|panic| Err(words_of(&panic).into()));
    if let Err(failure) = &outcome {
        tell(&scene, failure).await;
    }
    // Its objects go in the background; the next test does not wait for that.
    let removed = namespaces
        .delete(&scene.namespace, &DeleteParams::default())
        .await;
    // What the test said comes first: a cluster that does not remove may be what it is about.
    outcome?;
    removed?;
    Ok(())
}

/// Pods are refused in a namespace until its service account is there.
async fn prepared<T>(scene: &Scene, test: T) -> Result<(), Failure>
where
    T: AsyncFnOnce(&Scene) -> Result<(), Failure>,
{
    wait::until(&scene.api::<ServiceAccount>(), "default", "to exist", |_| true).await?;
    test(scene).await
}

fn words_of(panic: &Box<dyn Any + Send>) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    words
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panicked without words")
        .to_owned()
}

#[expect(
    clippy::print_stderr,
    reason = "the harness of cargo shows it below the name of the test"
)]
async fn tell(scene: &Scene, failure: &Failure) {
    let (name, directory) = (&scene.name, scene.reports());
    eprintln!("{name}: {failure}");
    match report::write(&scene.admin, &scene.namespace, &directory).await {
        Ok(()) => eprintln!(
            "{name}: objects, events and logs of its namespace are in {}",
            directory.display()
        ),
        Err(error) => eprintln!("{name}: what was in its namespace could not be written down: {error}"),
    }
}
