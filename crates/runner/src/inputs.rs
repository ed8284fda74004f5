//! Writes the provider's input files.

use std::{
    fs, io,
    path::{Component, Path},
};

use crate::{root::Root, spec::InputFile};

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("providerSpec.inputFiles[{index}].path is {path:?}: it must be absolute and without ..")]
    Path { index: usize, path: String },
    #[error(
        "cannot write {path}, which providerSpec.inputFiles[{index}] asks for: {source}; choose a path below a volume"
    )]
    Write {
        index: usize,
        path: String,
        source: io::Error,
    },
}

/// Writes the files; an entry with a blank path or no content is passed over.
pub(crate) fn write(files: &[InputFile], root: &Root) -> Result<(), InputError> {
    for (index, file) in files.iter().enumerate() {
        let trimmed = file.path.trim();
        if trimmed.is_empty() || file.content.is_empty() {
            continue;
        }
        let path = Path::new(trimmed);
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return Err(InputError::Path {
                index,
                path: file.path.clone(),
            });
        }
        write_one(&root.place(path), &file.content).map_err(|source| InputError::Write {
            index,
            path: file.path.clone(),
            source,
        })?;
    }
    Ok(())
}

fn write_one(path: &Path, content: &str) -> io::Result<()> {
    // The controller may have mounted the same file, read-only: then there is nothing to do.
    if fs::read(path).is_ok_and(|present| present == content.as_bytes()) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in ["relative/file", "/workspace/../etc/passwd"] {
            let file = InputFile {
                path: path.to_owned(),
                content: "x".to_owned(),
            };
            assert!(
                matches!(
                    write(&[file], &Root::default()),
                    Err(InputError::Path { index: 0, .. })
                ),
                "{path}"
            );
        }
    }

    #[test]
    fn directories_are_made_and_blank_entries_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/config.toml");
        let file = |path: &str, content: &str| InputFile {
            path: path.to_owned(),
            content: content.to_owned(),
        };

        let files = [
            file(" ", "x"),
            file("/nonexistent/empty", ""),
            file(path.to_str().unwrap(), "{{ raw }}"),
        ];
        write(&files, &Root::default()).unwrap();

        assert_eq!(fs::read_to_string(path).unwrap(), "{{ raw }}");
        assert!(!Path::new("/nonexistent").exists());
    }
}
