//! What the API server wrote down about requests: who asked for what, and how it was answered.

use std::{fs, io, path::PathBuf, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Bench, wait::LIMIT};

/// Between two looks at the log: a request is written down a moment after it was answered.
const PAUSE: Duration = Duration::from_millis(20);

/// One request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub verb: String,
    pub user: AuditUser,
    /// Absent for paths that are no resources, such as `/readyz`.
    #[serde(default)]
    pub object_ref: Object,
    #[serde(default)]
    pub response_status: Answer,
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    #[serde(rename = "requestURI")]
    pub uri: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    pub username: String,
}

/// What a request was about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub api_group: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub code: u16,
}

impl Request {
    /// Whether it changed something, or was to.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// `resource` or `resource/subresource`, as a Role has it.
    pub fn resource(&self) -> String {
        let Object {
            resource,
            subresource,
            ..
        } = &self.object_ref;
        if subresource.is_empty() {
            resource.clone()
        } else {
            format!("{resource}/{subresource}")
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("the API server does not answer: {0}")]
    Api(Box<kube::Error>),
    #[error("what was asked last is not in the audit log after {} s", LIMIT.as_secs())]
    Late,
}

impl Bench {
    /// All requests up to now of the user with this name, in the order in which they were written down. A watch is there
    /// twice: when it begins and when it ends.
    pub async fn audit(&self, admin: &Client, user: &str) -> Result<Vec<Request>, AuditError> {
        let path = self.directory.join("audit.log");
        // A request that can be recognised. When it is in the log, so is what was answered before it.
        let mark = format!("audit-{:08x}", rand::random::<u32>());
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let asked = namespaces.get_opt(&mark).await;
        asked.map_err(|error| AuditError::Api(Box::new(error)))?;
        let end = Instant::now() + LIMIT;
        loop {
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| AuditError::Unreadable {
                path: path.clone(),
                error,
            })?;
            if text.contains(&mark) {
                // The last line may be half written; it is not about what was asked before.
                let requests = text
                    .lines()
                    .filter_map(|line| serde_json::from_str::<Request>(line).ok());
                return Ok(requests.filter(|request| request.user.username == user).collect());
            }
            if Instant::now() > end {
                return Err(AuditError::Late);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_request() {
        let line = r#"{"kind":"Event","level":"Metadata","stage":"ResponseComplete","requestURI":"/apis/x","verb":"patch",
            "user":{"username":"ada","groups":["g"]},"objectRef":{"resource":"agentruns","namespace":"n","name":"r",
            "apiGroup":"agents.proompteng.ai","subresource":"status"},"responseStatus":{"metadata":{},"code":409},
            "requestReceivedTimestamp":"2030-01-01T00:00:00.000000Z"}"#;

        let request: Request = serde_json::from_str(line).expect("a request");

        assert_eq!(request.resource(), "agentruns/status");
        assert!(request.is_write() && !request.succeeded());
    }
}
