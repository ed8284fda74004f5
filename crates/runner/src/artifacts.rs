//! Records what the agent left behind: which of the declared files exist, and how large they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{mask::Masker, root::Root, spec::DeclaredArtifact};

/// Files counted below a directory. Beyond that its size is not told, so that a checkout with all its dependencies does not
/// hold up the end of a run.
const FILES_MAX: usize = 10_000;

/// An artifact that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Artifact {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Size of the file, or of all files in the directory. Absent where there is no file to measure, or too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

/// What of the declared artifacts is there, and the names of those that are not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    pub(crate) present: Vec<Artifact>,
    pub(crate) missing: Vec<String>,
}

/// Looks for the artifacts; a relative path is below `workspace`. One without a path is a mere reference and always there.
pub(crate) fn collect(
    declared: &[DeclaredArtifact],
    workspace: &Path,
    root: &Root,
    masker: &Masker,
) -> Collected {
    let mut collected = Collected::default();
    for artifact in declared {
        let masked = |text: &Option<String>| text.as_deref().map(|text| masker.text(text));
        let name = masker.text(&artifact.name);
        let bytes = match &artifact.path {
            None => None,
            Some(path) => match size(&root.resolve(&workspace.join(path))) {
                Some(size) => size.bytes(),
                None => {
                    collected.missing.push(name);
                    continue;
                }
            },
        };
        collected.present.push(Artifact {
            name,
            path: masked(&artifact.path),
            key: masked(&artifact.key),
            url: masked(&artifact.url),
            bytes,
        });
    }
    collected
}

enum Size {
    Known(u64),
    TooManyFiles,
}

impl Size {
    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Known(bytes) => Some(*bytes),
            Self::TooManyFiles => None,
        }
    }
}

/// The size of what is at `path`, or none if nothing is.
fn size(path: &Path) -> Option<Size> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_dir() {
        return Some(Size::Known(metadata.len()));
    }
    let mut total = 0_u64;
    let mut seen = 0;
    let mut directories: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        // A directory that cannot be read counts as empty: its size is a courtesy.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > FILES_MAX {
                return Some(Size::TooManyFiles);
            }
            // This does not follow links, so there are no circles.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => total = total.saturating_add(metadata.len()),
                Err(_) => {}
            }
        }
    }
    Some(Size::Known(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_is_recorded_with_its_size() {
        let workspace = tempfile::tempdir().unwrap();
        fs::create_dir_all(workspace.path().join("out/deep")).unwrap();
        fs::write(workspace.path().join("out/a"), "1234").unwrap();
        fs::write(workspace.path().join("out/deep/b"), "56").unwrap();
        let declare = |name: &str, path: Option<&str>, url: Option<&str>| DeclaredArtifact {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            key: None,
            url: url.map(str::to_owned),
        };

        let collected = collect(
            &[
                declare("file", Some("out/a"), None),
                declare("directory", Some("out"), None),
                declare("absent", Some("nothing"), None),
                declare("reference", None, Some("https://example.com/x")),
            ],
            workspace.path(),
            &Root::default(),
            &Masker::default(),
        );

        let sizes: Vec<_> = collected
            .present
            .iter()
            .map(|artifact| (artifact.name.as_str(), artifact.bytes))
            .collect();
        assert_eq!(
            sizes,
            [("file", Some(4)), ("directory", Some(6)), ("reference", None)]
        );
        assert_eq!(collected.missing, ["absent"]);
    }
}
