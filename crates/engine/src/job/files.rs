//! How files get into the pod: as annotations of the pod itself, which costs no further object, or in a ConfigMap if they
//! are too large for that.

use std::collections::BTreeMap;

use jangar_api::reason::Reason;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath, ObjectFieldSelector,
    Volume,
};

use crate::decision::Rejection;

/// The most bytes of files in annotations. Kubernetes allows an object 262,144 bytes of annotations, keys included; a
/// quarter of that is left to whatever else annotates pods on their way.
pub(super) const ANNOTATIONS_MAX_BYTES: usize = 196_608;
/// The most bytes of files in a ConfigMap. Kubernetes allows 1,048,576; the rest is for rounding the number in messages.
pub(super) const CONFIG_MAP_MAX_BYTES: usize = 1_000_000;
/// What the keys of the annotations begin with.
const KEY_PREFIX: &str = "agents.proompteng.ai/";

/// A file for the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Its name in the volume.
    pub(super) item: String,
    /// Where it is mounted.
    pub(super) path: String,
    pub(super) content: String,
    /// Where it comes from, for messages.
    pub(super) origin: String,
}

/// Where the files are kept until the pod mounts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// As annotations of the pod, by key.
    Annotations(BTreeMap<String, String>),
    /// In a ConfigMap, by item.
    ConfigMap(BTreeMap<String, String>),
}

impl Store {
    /// Chooses where the files are kept.
    pub(super) fn of(files: &[File]) -> Result<Self, Rejection> {
        let annotations: usize = files
            .iter()
            .map(|file| annotation_key(&file.item).len() + file.content.len())
            .sum();
        if annotations <= ANNOTATIONS_MAX_BYTES {
            let entry = |file: &File| (annotation_key(&file.item), file.content.clone());
            return Ok(Self::Annotations(files.iter().map(entry).collect()));
        }
        let bytes: usize = files.iter().map(|file| file.content.len()).sum();
        if bytes > CONFIG_MAP_MAX_BYTES {
            return Err(too_large(files, bytes));
        }
        let entry = |file: &File| (file.item.clone(), file.content.clone());
        Ok(Self::ConfigMap(files.iter().map(entry).collect()))
    }

    /// The volume with the files, from the pod's annotations or from the ConfigMap of this name.
    pub(super) fn volume(&self, name: &str, config_map: &str, files: &[File]) -> Volume {
        let volume = Volume {
            name: name.to_owned(),
            ..Default::default()
        };
        match self {
            Self::Annotations(_) => Volume {
                downward_api: Some(DownwardAPIVolumeSource {
                    items: Some(files.iter().map(projected).collect()),
                    default_mode: None,
                }),
                ..volume
            },
            Self::ConfigMap(_) => Volume {
                config_map: Some(ConfigMapVolumeSource {
                    name: config_map.to_owned(),
                    items: Some(files.iter().map(picked).collect()),
                    ..Default::default()
                }),
                ..volume
            },
        }
    }
}

fn annotation_key(item: &str) -> String {
    format!("{KEY_PREFIX}{item}")
}

fn projected(file: &File) -> DownwardAPIVolumeFile {
    DownwardAPIVolumeFile {
        path: file.item.clone(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{}']", annotation_key(&file.item)),
            api_version: None,
        }),
        ..Default::default()
    }
}

fn picked(file: &File) -> KeyToPath {
    KeyToPath {
        key: file.item.clone(),
        path: file.item.clone(),
        mode: None,
    }
}

/// Names the sizes, the largest first, because that is where something can be done.
fn too_large(files: &[File], bytes: usize) -> Rejection {
    /// How many files a message lists.
    const LISTED_MAX: usize = 5;
    let mut by_size: Vec<&File> = files.iter().collect();
    by_size.sort_by_key(|file| std::cmp::Reverse(file.content.len()));
    let sizes: Vec<String> = by_size
        .iter()
        .take(LISTED_MAX)
        .map(|file| format!("{} {}", file.origin, file.content.len()))
        .collect();
    let more = files.len().saturating_sub(LISTED_MAX);
    let more = if more == 0 {
        String::new()
    } else {
        format!(", and {more} more")
    };
    Rejection::new(
        Reason::InputsTooLarge,
        format!(
            "the files of the run have {bytes} bytes, and {CONFIG_MAP_MAX_BYTES} are allowed ({}{more}): shorten what is \
             largest, or put it into a volume or the image",
            sizes.join(", "),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(item: &str, bytes: usize) -> File {
        File {
            item: item.to_owned(),
            path: format!("/workspace/{item}"),
            content: "x".repeat(bytes),
            origin: item.to_owned(),
        }
    }

    #[test]
    fn files_are_annotations_as_long_as_they_fit() {
        let key = "agents.proompteng.ai/a".len();
        for (bytes, annotations) in [
            (0, true),
            (ANNOTATIONS_MAX_BYTES - key, true),
            (ANNOTATIONS_MAX_BYTES - key + 1, false),
            (CONFIG_MAP_MAX_BYTES, false),
        ] {
            let store = Store::of(&[file("a", bytes)]).unwrap();
            assert_eq!(matches!(store, Store::Annotations(_)), annotations, "{bytes}");
        }
    }

    #[test]
    fn too_much_is_refused_with_the_sizes_the_largest_first() {
        let mut files: Vec<File> = (0..5)
            .map(|index| file(&format!("input-{index}"), 10 + index))
            .collect();
        files.push(file("run.json", CONFIG_MAP_MAX_BYTES));

        let rejection = Store::of(&files).unwrap_err();

        assert_eq!(rejection.reason, Reason::InputsTooLarge);
        assert_eq!(
            rejection.message,
            "the files of the run have 1000060 bytes, and 1000000 are allowed (run.json 1000000, input-4 14, input-3 13, \
             input-2 12, input-1 11, and 1 more): shorten what is largest, or put it into a volume or the image"
        );
    }
}
