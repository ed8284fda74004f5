//! Writes down what was in the namespace of a test that failed: every object, the events in order, and the logs of all pods.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{DynamicObject, ListParams, LogParams},
    discovery::{Scope, verbs},
};

/// The end of a log is where the trouble is; a test that prints without end must not fill the disk.
const LOG_LINES_MAX: i64 = 10_000;
/// The same for lines without an end.
const LOG_BYTES_MAX: usize = 1_000_000;
/// Far more than a test makes, and a bound on what one report holds in memory.
const OBJECTS_MAX: u32 = 2_000;

#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {error}", path.display())]
pub struct ReportError {
    path: PathBuf,
    error: io::Error,
}

/// What the cluster does not tell is written down as such, in the place of it: the rest may be what explains the failure.
pub(super) async fn write(admin: &Client, namespace: &str, directory: &Path) -> Result<(), ReportError> {
    let unknown = |error: kube::Error| format!("the cluster does not say what there is: {error}\n");
    let events = events(admin, namespace).await.unwrap_or_else(unknown);
    save(directory, "events.txt", &events)?;
    let objects = objects(admin, namespace).await.unwrap_or_else(unknown);
    save(directory, "objects.json", &objects)?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    let list = match pods.list(&ListParams::default().limit(OBJECTS_MAX)).await {
        Ok(list) => list,
        Err(error) => return save(directory, "logs.txt", &unknown(error)),
    };
    for pod in list {
        for container in containers(&pod) {
            let parameters = LogParams {
                container: Some(container.clone()),
                tail_lines: Some(LOG_LINES_MAX),
                ..LogParams::default()
            };
            // A container that never started has no log, which is worth knowing too.
            let log = pods.logs(&pod.name_any(), &parameters).await;
            let log = log.unwrap_or_else(|error| format!("no log: {error}\n"));
            save(
                directory,
                &format!("log-{}-{container}.txt", pod.name_any()),
                end_of(&log, LOG_BYTES_MAX),
            )?;
        }
    }
    Ok(())
}

/// The last bytes of a text, and fewer where that would cut a character in two.
fn end_of(text: &str, bytes: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(bytes));
    text.get(start..).unwrap_or_default()
}

fn containers(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
        .map(|container| container.name.clone())
        .collect()
}

async fn events(admin: &Client, namespace: &str) -> Result<String, kube::Error> {
    let api: Api<Event> = Api::namespaced(admin.clone(), namespace);
    let mut events = api.list(&ListParams::default().limit(OBJECTS_MAX)).await?.items;
    events.sort_by_key(|event| event.creation_timestamp().map(|time| time.0));
    let mut text = String::new();
    for event in events {
        let about = &event.involved_object;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} {} {}/{}: {}",
            event
                .creation_timestamp()
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            event.reason.as_deref().unwrap_or("-"),
            about.kind.as_deref().unwrap_or("-"),
            about.name.as_deref().unwrap_or("-"),
            event.message.as_deref().unwrap_or("-"),
        );
    }
    Ok(text)
}

/// Every object of every kind that lives in namespaces, as JSON, one to a line.
async fn objects(admin: &Client, namespace: &str) -> Result<String, kube::Error> {
    let discovery = Discovery::new(admin.clone()).run().await?;
    let mut text = String::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
            // One kind that cannot be listed does not hide the others.
            match api.list(&ListParams::default().limit(OBJECTS_MAX)).await {
                Ok(list) => {
                    for mut object in list {
                        object.managed_fields_mut().clear();
                        let line = serde_json::to_string(&object).unwrap_or_else(|error| error.to_string());
                        let _ = writeln!(text, "{line}");
                    }
                }
                Err(error) => {
                    let _ = writeln!(text, "{} cannot be listed: {error}", resource.plural);
                }
            }
        }
    }
    Ok(text)
}

fn save(directory: &Path, name: &str, text: &str) -> Result<(), ReportError> {
    let path = directory.join(name);
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, text));
    written.map_err(|error| ReportError { path, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_what_is_kept() {
        assert_eq!(end_of("begin end", 3), "end");
        assert_eq!(end_of("end", 3), "end");
        assert_eq!(end_of("a\u{20ac}b", 2), "b");
        assert_eq!(end_of("", 3), "");
    }
}
