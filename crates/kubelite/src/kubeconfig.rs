//! The file with which kubectl and other clients find the server and prove who they are.

use std::path::{Path, PathBuf};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use rand::CryptoRng;
use serde_json::json;

use crate::private_file;

/// 256 bits cannot be guessed.
const TOKEN_BYTES: usize = 32;

/// What the file says. Cluster, user and context all carry the one name.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    pub name: &'a str,
    /// `https://127.0.0.1:6443`
    pub server: &'a str,
    /// The certificate authority to trust, in PEM.
    pub ca_pem: &'a str,
    pub token: &'a str,
    pub namespace: &'a str,
}

/// Why the file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("the kubeconfig has no YAML form: {0}")]
    Encode(#[from] serde_saphyr::ser::Error),
    #[error("cannot write the kubeconfig {path}: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

impl Kubeconfig<'_> {
    pub fn to_yaml(&self) -> Result<String, KubeconfigError> {
        let name = self.name;
        Ok(serde_saphyr::to_string(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{
                "name": name,
                "cluster": {
                    "server": self.server,
                    "certificate-authority-data": STANDARD.encode(self.ca_pem),
                },
            }],
            "users": [{ "name": name, "user": { "token": self.token } }],
            "contexts": [{
                "name": name,
                "context": { "cluster": name, "user": name, "namespace": self.namespace },
            }],
        }))?)
    }

    /// Writes the file with mode 0600, in one step.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        private_file::write(path, self.to_yaml()?.as_bytes(), private_file::PRIVATE).map_err(|source| {
            KubeconfigError::Write {
                path: path.to_owned(),
                source,
            }
        })
    }
}

/// A new bearer token.
pub fn new_token(rng: &mut impl CryptoRng) -> String {
    let mut bytes = [0; TOKEN_BYTES];
    rng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn clients_read_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/kubeconfig");
        let token = new_token(&mut StdRng::seed_from_u64(1));
        let config = Kubeconfig {
            name: "kubelite",
            server: "https://127.0.0.1:6443",
            ca_pem: "-----BEGIN CERTIFICATE-----\n",
            token: &token,
            namespace: "default",
        };
        config.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let read = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("kubelite"));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(
            cluster.certificate_authority_data.as_deref(),
            Some(STANDARD.encode("-----BEGIN CERTIFICATE-----\n").as_str())
        );
        let context = read.contexts[0].context.as_ref().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("default"));
        assert!(read.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let mut rng = StdRng::seed_from_u64(7);
        let (first, second) = (new_token(&mut rng), new_token(&mut rng));
        assert_eq!(first.len(), 43);
        assert_ne!(first, second);
        assert!(
            first
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        );
    }
}
