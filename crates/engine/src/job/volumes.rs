//! What is mounted into the container, and where. No two mounts may be in each other's way, which the API server does not
//! check and the node reports badly.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    agents::workload::{VolumeType, WorkloadVolume},
    reason::Reason,
};
use k8s_openapi::{
    api::core::v1::{
        ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, PersistentVolumeClaimVolumeSource,
        SecretVolumeSource, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{paths, policy::present};
use crate::decision::{KeyHolder, Rejection};

/// What may be mounted below a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// Further mounts: it is a directory.
    Mounts,
    /// Nothing: it is a file, or agent-runner's own directory.
    Nothing,
}

/// A place in the container that is taken.
#[derive(Clone, Debug)]
struct Claim {
    by: String,
    below: Below,
}

/// The volumes of a pod and the mounts of its main container.
#[derive(Debug, Default)]
pub(super) struct Layout {
    volumes: Vec<Volume>,
    names: BTreeSet<String>,
    mounts: Vec<VolumeMount>,
    claims: BTreeMap<String, Claim>,
}

impl Layout {
    /// Adds a volume of the pod's own.
    pub(super) fn volume(&mut self, volume: Volume) {
        self.names.insert(volume.name.clone());
        self.volumes.push(volume);
    }

    /// Adds an empty directory of the pod's own, unless the workload brings a volume for that place.
    pub(super) fn directory(
        &mut self,
        name: &str,
        path: &str,
        workload: &[WorkloadVolume],
    ) -> Result<(), Rejection> {
        let brought = workload
            .iter()
            .any(|volume| normal(&volume.mount_path).as_deref() == Some(path));
        if brought {
            return Ok(());
        }
        self.volume(empty_dir(name));
        self.mount(mount(name, path), Below::Mounts, "the pod's own directory", "")
    }

    /// Keeps a place free of volumes: the node puts something there.
    pub(super) fn reserve(&mut self, path: &str, holder: &str) {
        let (by, below) = (holder.to_owned(), Below::Nothing);
        self.claims.insert(path.to_owned(), Claim { by, below });
    }

    /// Mounts a volume. `field` is where the mount comes from, and `holder` what it is, for messages.
    pub(super) fn mount(
        &mut self,
        mount: VolumeMount,
        below: Below,
        holder: &str,
        field: &str,
    ) -> Result<(), Rejection> {
        let given = mount.mount_path.clone();
        let Some(path) = normal(&given).filter(|path| path != "/") else {
            return Err(invalid(format!(
                "{field} is {given:?}: it must be an absolute path without .. and colons, below /"
            )));
        };
        if let Some(holder) = self.in_the_way(&path, below) {
            return Err(invalid(format!(
                "{field} is {given:?}, and {holder} is mounted there: choose another path"
            )));
        }
        let by = holder.to_owned();
        self.claims.insert(path.clone(), Claim { by, below });
        self.mounts.push(VolumeMount {
            mount_path: path,
            ..mount
        });
        Ok(())
    }

    /// What has the place already, or makes it impossible.
    fn in_the_way(&self, path: &str, below: Below) -> Option<&str> {
        let same = self.claims.get(path);
        let above = ancestors(path)
            .filter_map(|ancestor| self.claims.get(ancestor))
            .find(|claim| claim.below == Below::Nothing);
        let inside = format!("{path}/");
        let beneath = self
            .claims
            .range(inside.clone()..)
            .next()
            .filter(|(place, _)| below == Below::Nothing && place.starts_with(&inside))
            .map(|(_, claim)| claim);
        same.or(above).or(beneath).map(|claim| claim.by.as_str())
    }

    /// Adds the volumes of the workload.
    pub(super) fn workload(&mut self, volumes: &[WorkloadVolume]) -> Result<(), Rejection> {
        for (index, volume) in volumes.iter().enumerate() {
            let field = format!("spec.workload.volumes[{index}]");
            self.workload_volume(volume, &field)?;
        }
        Ok(())
    }

    fn workload_volume(&mut self, volume: &WorkloadVolume, field: &str) -> Result<(), Rejection> {
        let Some(name) = present(&volume.name) else {
            return Err(invalid(format!("{field}.name is blank: give the volume a name")));
        };
        if !self.names.insert(name.to_owned()) {
            return Err(invalid(format!(
                "{field}.name is {name:?}, which another volume of the pod has: choose another name"
            )));
        }
        let writable = volume.read_only != Some(true) && volume.type_ != VolumeType::Secret;
        if !writable && normal(&volume.mount_path).as_deref() == Some(paths::WORKSPACE) {
            return Err(invalid(format!(
                "{field} cannot be written to, and the runner writes below {}: mount it elsewhere",
                paths::WORKSPACE
            )));
        }
        let holder = format!("the volume {name:?}");
        let mount = VolumeMount {
            read_only: volume.read_only.filter(|read_only| *read_only),
            ..mount(name, volume.mount_path.trim())
        };
        self.mount(mount, Below::Mounts, &holder, &format!("{field}.mountPath"))?;
        self.volumes.push(source(volume, name, field)?);
        Ok(())
    }

    /// The volumes, and the mounts with those above before those below.
    pub(super) fn finish(mut self) -> (Vec<Volume>, Vec<VolumeMount>) {
        self.mounts
            .sort_by(|one, other| one.mount_path.cmp(&other.mount_path));
        (self.volumes, self.mounts)
    }
}

/// A mount of a whole volume.
pub(super) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        ..Default::default()
    }
}

/// A mount of one file of a volume, which cannot be written to.
pub(super) fn file_mount(volume: &str, file: &str, path: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(file.to_owned()),
        read_only: Some(true),
        ..mount(volume, path)
    }
}

pub(super) fn empty_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Default::default()
    }
}

/// A volume with all of a Secret.
pub(super) fn secret(volume: &str, secret: &str) -> Volume {
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A volume with one file of a Secret, under the name of its key.
pub(super) fn secret_file(volume: &str, secret: &str, key: &str) -> Volume {
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            items: Some(vec![KeyToPath {
                key: key.to_owned(),
                path: key.to_owned(),
                mode: None,
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Only the pod's own user may read a key: ssh refuses one that others may.
const KEY_MODE: i32 = 0o400;

/// A volume with one value of a Secret or a ConfigMap, under the name of its key.
pub(super) fn one_value(volume: &str, holder: &KeyHolder, key: &str) -> Volume {
    let item = |mode| {
        Some(vec![KeyToPath {
            key: key.to_owned(),
            path: key.to_owned(),
            mode,
        }])
    };
    let named = Volume {
        name: volume.to_owned(),
        ..Default::default()
    };
    match holder {
        KeyHolder::Secret(name) => Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(name.clone()),
                items: item(Some(KEY_MODE)),
                ..Default::default()
            }),
            ..named
        },
        KeyHolder::ConfigMap(name) => Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: name.clone(),
                items: item(None),
                ..Default::default()
            }),
            ..named
        },
    }
}

fn source(volume: &WorkloadVolume, name: &str, field: &str) -> Result<Volume, Rejection> {
    let needed = |value: Option<&String>, wanted: &str, what: &str| {
        let value = value.and_then(|value| present(value)).map(str::to_owned);
        value.ok_or_else(|| {
            invalid(format!(
                "{field}.{wanted} is not set, and a volume of type {} is made of one: name the {what}",
                volume.type_
            ))
        })
    };
    let named = Volume {
        name: name.to_owned(),
        ..Default::default()
    };
    match &volume.type_ {
        VolumeType::EmptyDir => Ok(Volume {
            empty_dir: Some(EmptyDirVolumeSource {
                medium: volume.medium.as_deref().and_then(present).map(str::to_owned),
                size_limit: volume
                    .size_limit
                    .as_deref()
                    .and_then(present)
                    .map(|size| Quantity(size.to_owned())),
            }),
            ..named
        }),
        VolumeType::Pvc => Ok(Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: needed(volume.claim_name.as_ref(), "claimName", "PersistentVolumeClaim")?,
                read_only: volume.read_only.filter(|read_only| *read_only),
            }),
            ..named
        }),
        VolumeType::Secret => Ok(Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(needed(volume.secret_name.as_ref(), "secretName", "Secret")?),
                ..Default::default()
            }),
            ..named
        }),
        VolumeType::Other(type_) => Err(invalid(format!(
            "{field}.type is {:?}: it must be emptyDir, pvc or secret",
            type_.as_str()
        ))),
    }
}

/// The path without superfluous slashes and dots; `None` if it is relative, leads upwards, or has a colon, which Kubernetes
/// does not allow in a mount path.
fn normal(path: &str) -> Option<String> {
    let inside = path.trim().strip_prefix('/')?;
    if path.contains(':') || inside.split('/').any(|part| part == "..") {
        return None;
    }
    let parts: Vec<&str> = inside
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    Some(format!("/{}", parts.join("/")))
}

/// The directories above a path, the nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|(above, _)| above), |path| {
        path.rsplit_once('/').map(|(above, _)| above)
    })
}

fn invalid(message: String) -> Rejection {
    Rejection::new(Reason::InvalidVolume, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_in_their_normal_form() {
        for (path, expected) in [
            ("/workspace", Some("/workspace")),
            ("/workspace/", Some("/workspace")),
            ("//workspace/./lab//", Some("/workspace/lab")),
            ("/", Some("/")),
            ("workspace", None),
            ("", None),
            ("/workspace/../etc", None),
            ("/a:b", None),
            ("/..data", Some("/..data")),
        ] {
            assert_eq!(normal(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn mounts_that_are_in_each_others_way_are_found_in_either_order() {
        for (first, second, expected) in [
            (("/a", Below::Mounts), ("/a", Below::Mounts), true),
            (("/a", Below::Mounts), ("/a/b", Below::Nothing), false),
            (("/a", Below::Nothing), ("/a/b", Below::Mounts), true),
            (("/a", Below::Nothing), ("/a/b/c", Below::Nothing), true),
            (("/a", Below::Nothing), ("/ab", Below::Mounts), false),
            (("/a-b", Below::Nothing), ("/a", Below::Nothing), false),
        ] {
            for (one, other) in [(first, second), (second, first)] {
                let mut layout = Layout::default();
                layout.mount(mount("v", one.0), one.1, "the first", "").unwrap();
                let refused = layout.mount(mount("w", other.0), other.1, "the second", "field");
                assert_eq!(refused.is_err(), expected, "{one:?} {other:?}");
            }
        }
    }
}
