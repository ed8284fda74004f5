//! From files to documents.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Document, Mistake, Mistakes, Origin, all};

/// The size of a file. Ten times what a whole installation has; a program or an archive given by mistake is larger.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads every document of every file, or says everything that is wrong with them.
pub(crate) fn read<P: AsRef<Path>>(files: &[P]) -> Result<Vec<Document>, Mistakes> {
    all(files.iter().flat_map(|file| {
        let file = file.as_ref();
        let name = file.display().to_string();
        match content(file) {
            Ok(text) => documents(&name, &text),
            Err(error) => vec![Err(Mistake::new(name, error))],
        }
    }))
}

/// Reads documents that are at hand, each text with the name it is known by.
pub(crate) fn parse(texts: &[(&str, &str)]) -> Result<Vec<Document>, Mistakes> {
    all(texts.iter().flat_map(|(name, text)| documents(name, text)))
}

fn content(path: &Path) -> Result<String, String> {
    let remedy = "correct the path given with -f";
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::IsADirectory => format!(
            "it is a directory; name its files with -f, for example {}/*.yaml",
            path.display()
        ),
        io::ErrorKind::InvalidData => "it is not text in UTF-8; give a YAML or JSON file with -f".to_owned(),
        _ => format!("it cannot be read: {error}; {remedy}"),
    };
    let file = File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "it has more than {} MiB; split it into several files",
            FILE_BYTES_MAX / (1024 * 1024)
        ));
    }
    Ok(text)
}

/// The documents of one file. After a mistake in the syntax nothing more of it can be read.
fn documents(file: &str, text: &str) -> Vec<Result<Document, Mistake>> {
    let mut bytes = text.as_bytes();
    // Messages are one line each; the place is said by line and column.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::read_with_options::<_, Value>(&mut bytes, options)
        .zip(1..)
        .map(|(value, number)| {
            let origin = Origin {
                file: file.to_owned(),
                number,
            };
            match value {
                Ok(value) => document(origin, value),
                Err(error) => Err(Mistake::new(
                    &origin,
                    format_args!("{error}; correct the YAML there"),
                )),
            }
        })
        .collect()
}

/// Takes a document for an object, if it says what object it is.
fn document(origin: Origin, value: Value) -> Result<Document, Mistake> {
    if !value.is_object() {
        return Err(Mistake::new(
            &origin,
            "it is not an object; each document must be one, with apiVersion, kind and metadata.name",
        ));
    }
    let text = |path: &str, remedy: &str| match value.pointer(path) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        found => {
            let field = path.trim_start_matches('/').replace('/', ".");
            let wrong = match found {
                None | Some(Value::Null) => "it is missing".to_owned(),
                Some(other) => format!("{other} is not a name"),
            };
            Err(Mistake::new(&origin, format_args!("{field}: {wrong}; {remedy}")))
        }
    };
    let api_version = text(
        "/apiVersion",
        "write the kind's group and version, for example agents.proompteng.ai/v1alpha1",
    )?;
    let kind = text("/kind", "write the kind of the object, for example AgentRun")?;
    let name = text(
        "/metadata/name",
        "give the object a name, by which it is found again when it is applied again",
    )?;
    let namespace = match value.pointer("/metadata/namespace") {
        None | Some(Value::Null) => None,
        Some(_) => Some(text(
            "/metadata/namespace",
            "write the name of a namespace, or leave it out",
        )?),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Ok(Document {
        kind: GroupVersionKind::gvk(group, version, &kind),
        origin,
        name,
        namespace,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> String {
        let mistakes: Vec<_> = documents("f.yaml", text)
            .into_iter()
            .filter_map(Result::err)
            .collect();
        Mistakes(mistakes).to_string()
    }

    #[test]
    fn documents_are_read_in_order_and_empty_ones_are_passed_over() {
        let text = "# a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\n---\n\
                    apiVersion: agents.proompteng.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: two, namespace: team}\n";
        let documents: Vec<_> = documents("f.yaml", text)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let shown: Vec<_> = documents
            .iter()
            .map(|document| {
                let kind = &document.kind;
                (
                    document.origin.number,
                    kind.api_version(),
                    kind.kind.as_str(),
                    document.name.as_str(),
                    document.namespace.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                (1, "v1".to_owned(), "ConfigMap", "one", None),
                (
                    2,
                    "agents.proompteng.ai/v1alpha1".to_owned(),
                    "AgentRun",
                    "two",
                    Some("team")
                ),
            ]
        );
    }

    #[test]
    fn a_bad_document_is_named_by_file_number_and_field() {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n";
        for (text, expected) in [
            (
                "kind: X\nmetadata: {name: a}",
                "document 2: apiVersion: it is missing; write the kind's group",
            ),
            (
                "apiVersion: v1\nmetadata: {name: a}",
                "document 2: kind: it is missing",
            ),
            (
                "apiVersion: 1\nkind: X",
                "document 2: apiVersion: 1 is not a name",
            ),
            (
                "apiVersion: v1\nkind: X\nmetadata: {generateName: a-}",
                "document 2: metadata.name: it is missing; give",
            ),
            (
                "apiVersion: v1\nkind: X\nmetadata: {name: a, namespace: 3}",
                "document 2: metadata.namespace: 3 is not",
            ),
            ("- a\n- b", "document 2: it is not an object"),
            ("a: b: c", "document 2: "),
            ("a: 1\na: 2", "document 2: "),
        ] {
            let found = mistake(&format!("{good}{text}\n"));
            assert!(
                found.contains(&format!("f.yaml, {expected}")),
                "{text:?}: {found}"
            );
            assert_eq!(found.lines().count(), 2, "{found}");
        }
    }

    #[test]
    fn all_mistakes_of_all_files_are_told_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (
            directory.path().join("one.yaml"),
            directory.path().join("two.yaml"),
        );
        std::fs::write(&one, "kind: A\n---\nkind: B\n").unwrap();
        std::fs::write(&two, b"\xff\xfe\xfd").unwrap();
        let missing = directory.path().join("missing.yaml");
        let text = read(&[one, two, missing, directory.path().to_owned()])
            .unwrap_err()
            .to_string();
        for expected in [
            "one.yaml, document 1",
            "one.yaml, document 2",
            "two.yaml: it is not text",
            "missing.yaml: it cannot be read",
            "it is a directory",
        ] {
            assert!(text.contains(expected), "{expected} is missing in {text}");
        }
    }
}
