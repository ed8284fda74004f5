//! What the volumes of a pod hold.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume, VolumeProjection,
};

use super::{
    field::{self, Facts},
    objects::{ConfigError, Objects},
};

/// What Kubernetes gives files whose mode nobody says.
const DEFAULT_MODE: i32 = 0o644;
const MODE_BITS: i32 = 0o7777;

/// A file of a volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct VolumeFile {
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Where a volume's content comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Content {
    /// Written once, and read-only in every container.
    Files(Vec<VolumeFile>),
    /// Empty at first, and gone with the pod.
    Scratch,
    /// Kept for as long as the claim with this UID.
    Claim { uid: String, read_only: bool },
}

/// What does not come from the pod or the objects it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) facts: &'a Facts,
    /// The token that `serviceAccountToken` sources hold; without one they hold nothing.
    pub(crate) token: Option<&'a str>,
}

pub(crate) fn content(pod: &Pod, volume: &Volume, around: Surroundings<'_>) -> Result<Content, ConfigError> {
    if volume.empty_dir.is_some() {
        return Ok(Content::Scratch);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let found = around.objects.claim(&claim.claim_name)?;
        return Ok(Content::Claim {
            uid: found.metadata.uid.clone().unwrap_or_default(),
            read_only: claim.read_only == Some(true),
        });
    }
    let files = if let Some(map) = &volume.config_map {
        let found = around.objects.config_map(&map.name, map.optional)?;
        map_files(found, map.items.as_deref(), map.default_mode, map.optional)?
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or("");
        let found = around.objects.secret(name, secret.optional)?;
        secret_files(
            found,
            secret.items.as_deref(),
            secret.default_mode,
            secret.optional,
        )?
    } else if let Some(downward) = &volume.downward_api {
        downward_files(
            pod,
            downward.items.as_deref(),
            downward.default_mode,
            around.facts,
        )?
    } else if let Some(projected) = &volume.projected {
        let mut files = Vec::new();
        for source in projected.sources.iter().flatten() {
            files.extend(projection(pod, source, projected.default_mode, around)?);
        }
        files
    } else {
        return Err(ConfigError::UnknownVolume {
            name: volume.name.clone(),
        });
    };
    match files.iter().find(|file| !stays_inside(&file.path)) {
        Some(file) => Err(ConfigError::PathLeavesVolume {
            path: file.path.display().to_string(),
        }),
        None => Ok(Content::Files(files)),
    }
}

fn projection(
    pod: &Pod,
    source: &VolumeProjection,
    mode: Option<i32>,
    around: Surroundings<'_>,
) -> Result<Vec<VolumeFile>, ConfigError> {
    if let Some(map) = &source.config_map {
        let found = around.objects.config_map(&map.name, map.optional)?;
        return map_files(found, map.items.as_deref(), mode, map.optional);
    }
    if let Some(secret) = &source.secret {
        let found = around.objects.secret(&secret.name, secret.optional)?;
        return secret_files(found, secret.items.as_deref(), mode, secret.optional);
    }
    if let Some(downward) = &source.downward_api {
        return downward_files(pod, downward.items.as_deref(), mode, around.facts);
    }
    let token = source.service_account_token.as_ref().zip(around.token);
    Ok(token
        .map(|(source, token)| file(&source.path, None, mode, token.as_bytes().to_vec()))
        .into_iter()
        .collect())
}

fn file(path: &str, mode: Option<i32>, default_mode: Option<i32>, bytes: Vec<u8>) -> VolumeFile {
    let mode = mode.or(default_mode).unwrap_or(DEFAULT_MODE) & MODE_BITS;
    VolumeFile {
        path: PathBuf::from(path),
        mode: mode.unsigned_abs(),
        bytes,
    }
}

fn map_files(
    map: Option<&ConfigMap>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: Option<bool>,
) -> Result<Vec<VolumeFile>, ConfigError> {
    let Some(map) = map else { return Ok(Vec::new()) };
    let texts = map.data.iter().flatten();
    let binaries = map.binary_data.iter().flatten();
    let values: Vec<(&str, &[u8])> = texts
        .map(|(key, value)| (key.as_str(), value.as_bytes()))
        .chain(binaries.map(|(key, value)| (key.as_str(), value.0.as_slice())))
        .collect();
    chosen(&values, items, mode, optional)
}

fn secret_files(
    secret: Option<&Secret>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: Option<bool>,
) -> Result<Vec<VolumeFile>, ConfigError> {
    let Some(secret) = secret else {
        return Ok(Vec::new());
    };
    let data = secret.data.iter().flatten();
    let values: Vec<(&str, &[u8])> = data
        .map(|(key, value)| (key.as_str(), value.0.as_slice()))
        .collect();
    chosen(&values, items, mode, optional)
}

/// All keys under their names, or those that are listed under the paths given for them.
fn chosen(
    values: &[(&str, &[u8])],
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: Option<bool>,
) -> Result<Vec<VolumeFile>, ConfigError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let all = values
            .iter()
            .map(|(key, bytes)| file(key, None, mode, bytes.to_vec()));
        return Ok(all.collect());
    };
    let mut files = Vec::new();
    for item in items {
        match values.iter().find(|(key, _)| *key == item.key) {
            Some((_, bytes)) => files.push(file(&item.path, item.mode, mode, bytes.to_vec())),
            None if optional == Some(true) => {}
            None => {
                return Err(ConfigError::NoItem {
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(files)
}

fn downward_files(
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
    facts: &Facts,
) -> Result<Vec<VolumeFile>, ConfigError> {
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    items
        .unwrap_or_default()
        .iter()
        .map(|item| {
            let text = if let Some(reference) = &item.field_ref {
                field::pod_field(pod, &reference.field_path, facts)?
            } else if let Some((reference, container)) = item.resource_field_ref.as_ref().zip(first) {
                field::resource_field(pod, container, reference, facts)?
            } else {
                return Err(ConfigError::UnknownField {
                    path: item.path.clone(),
                });
            };
            Ok(file(&item.path, item.mode, mode, text.into_bytes()))
        })
        .collect()
}

/// Whether a relative path names something below where it starts.
pub(crate) fn stays_inside(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|component| matches!(component, Component::Normal(_)))
}

/// Writes the files of a volume into a new directory.
pub(crate) fn write(directory: &Path, files: &[VolumeFile]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for file in files {
        let path = directory.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Later sources of a projected volume win over earlier ones.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut out = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        io::Write::write_all(&mut out, &file.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content_of(volume: serde_json::Value) -> Result<Content, ConfigError> {
        let map = json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "/w=="}});
        let secret = json!({"data": {"key": "c2VjcmV0"}});
        let objects = Objects::new("ns")
            .with_config_map("m", serde_json::from_value(map).unwrap())
            .with_secret("s", serde_json::from_value(secret).unwrap());
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}
        }))
        .unwrap();
        let around = Surroundings {
            objects: &objects,
            facts: &Facts::for_tests(),
            token: Some("token"),
        };
        content(&pod, &serde_json::from_value(volume).unwrap(), around)
    }

    fn listed(volume: serde_json::Value) -> Vec<(String, u32, Vec<u8>)> {
        let Content::Files(files) = content_of(volume).unwrap() else {
            panic!("a volume of files");
        };
        let listed = files.into_iter().map(|file| {
            let path = file.path.display().to_string();
            (path, file.mode, file.bytes)
        });
        listed.collect()
    }

    fn entry(path: &str, mode: u32, bytes: &[u8]) -> (String, u32, Vec<u8>) {
        (path.to_owned(), mode, bytes.to_vec())
    }

    #[test]
    fn volumes_hold_what_their_sources_hold() {
        let whole = json!({"name": "v", "configMap": {"name": "m"}});
        assert_eq!(
            listed(whole),
            [
                entry("a", 0o644, b"1"),
                entry("b", 0o644, b"2"),
                entry("c", 0o644, b"\xff")
            ]
        );
        let items = json!({"name": "v", "secret": {
            "secretName": "s", "defaultMode": 0o400, "items": [{"key": "key", "path": "deep/file"}]
        }});
        assert_eq!(listed(items), [entry("deep/file", 0o400, b"secret")]);
        let projected = json!({"name": "v", "projected": {"defaultMode": 0o440, "sources": [
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "x", "mode": 0o600}]}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"serviceAccountToken": {"path": "token"}},
            {"secret": {"name": "none", "optional": true}}
        ]}});
        assert_eq!(
            listed(projected),
            [
                entry("x", 0o600, b"1"),
                entry("name", 0o440, b"p"),
                entry("token", 0o440, b"token")
            ]
        );
        assert_eq!(
            listed(json!({"name": "v", "configMap": {"name": "none", "optional": true}})),
            []
        );
    }

    #[test]
    fn volumes_that_cannot_be_say_why() {
        for (volume, message) in [
            (
                json!({"name": "v", "configMap": {"name": "none"}}),
                "configmap \"none\" not found",
            ),
            (
                json!({"name": "v", "configMap": {"name": "m", "items": [{"key": "x", "path": "x"}]}}),
                "references non-existent config key: x",
            ),
            (
                json!({"name": "v", "configMap": {"name": "m", "items": [{"key": "a", "path": "../x"}]}}),
                "path \"../x\" leaves its volume",
            ),
            (
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "x"}}),
                "persistentvolumeclaim \"x\" not found",
            ),
        ] {
            assert_eq!(content_of(volume).unwrap_err().to_string(), message);
        }
        let host = json!({"name": "v", "hostPath": {"path": "/"}});
        assert!(matches!(content_of(host), Err(ConfigError::UnknownVolume { .. })));
    }

    #[test]
    fn written_files_have_their_mode() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            file("a/b", Some(0o400), None, b"x".to_vec()),
            file("a/b", None, None, b"y".to_vec()),
        ];
        write(directory.path(), &files).unwrap();
        let path = directory.path().join("a/b");
        assert_eq!(fs::read(&path).unwrap(), b"y", "the later source wins");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
