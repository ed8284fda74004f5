//! Manifests: files, folders and standard input, as documents.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use jangar_api::Kind;
use serde_json::Value;

use crate::error::Error;

/// The size of a file. Ten times what a whole installation has; a program or an archive given by mistake is larger.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How many files a folder may hold: more than that, and it is not a folder of manifests.
const FILES_MAX: usize = 10_000;
/// How many mistakes are listed: more than that are most often one mistake, repeated.
const LISTED_MAX: usize = 50;

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    /// Counted from one; empty documents are not counted.
    pub number: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.number)
    }
}

/// One object as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub origin: Origin,
    pub value: Value,
}

impl Document {
    pub fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Which of our kinds it is, if it is one.
    pub fn kind(&self) -> Option<Kind> {
        let (api_version, kind) = (self.text("/apiVersion"), self.text("/kind"));
        Kind::ALL.iter().copied().find(|known| {
            let info = known.info();
            info.kind == kind && api_version == format!("{}/{}", info.group, info.version)
        })
    }

    /// What it is called in messages.
    pub fn called(&self) -> String {
        format!("{} ({} {})", self.origin, self.text("/kind"), self.name())
    }
}

/// Something that is wrong with a file or a document: names the place, the field and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub place: String,
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// All mistakes as one error.
pub fn refused(mistakes: &[Mistake]) -> Error {
    let mut lines: Vec<String> = mistakes
        .iter()
        .take(LISTED_MAX)
        .map(|mistake| format!("  {mistake}"))
        .collect();
    let more = mistakes.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    Error::Validation(format!(
        "nothing was done, because of what the manifests say:\n{}",
        lines.join("\n")
    ))
}

/// What was read, and what could not be.
#[derive(Debug, Default)]
pub struct Manifests {
    pub documents: Vec<Document>,
    pub mistakes: Vec<Mistake>,
    /// How many files were looked at.
    pub files: usize,
}

impl Manifests {
    /// Reads files, the YAML and JSON files of folders, and standard input.
    pub fn read(places: &[String]) -> Self {
        let mut all = Self::default();
        for place in places {
            if place == "-" {
                all.files += 1;
                let mut text = String::new();
                let read = io::stdin()
                    .lock()
                    .take(FILE_BYTES_MAX + 1)
                    .read_to_string(&mut text);
                all.take("standard input", read.map(|_| text));
                continue;
            }
            match files(Path::new(place)) {
                Ok(files) => {
                    for file in files {
                        all.files += 1;
                        all.take(&file.display().to_string(), content(&file));
                    }
                }
                Err(text) => all.mistakes.push(Mistake {
                    place: place.clone(),
                    text,
                }),
            }
        }
        all
    }

    /// The documents, if nothing is wrong with any of them.
    pub fn whole(self) -> Result<Vec<Document>, Error> {
        if !self.mistakes.is_empty() {
            return Err(refused(&self.mistakes));
        }
        if self.documents.is_empty() {
            return Err(Error::Validation(
                "there is no document in what was given: give a YAML or JSON file with at least one object"
                    .to_owned(),
            ));
        }
        Ok(self.documents)
    }

    fn take(&mut self, file: &str, content: io::Result<String>) {
        let mut wrong = |text: String| {
            self.mistakes.push(Mistake {
                place: file.to_owned(),
                text,
            });
        };
        match content {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                wrong("it is not text in UTF-8: give a YAML or JSON file".to_owned());
            }
            Err(error) => wrong(format!("it cannot be read: {error}")),
            Ok(text) if text.len() as u64 > FILE_BYTES_MAX => wrong(format!(
                "it has more than {} MiB: split it into several files",
                FILE_BYTES_MAX / (1024 * 1024)
            )),
            Ok(text) => self.parse(file, &text),
        }
    }

    /// Reads the documents of one text. After a mistake in the syntax nothing more of it can be read.
    pub fn parse(&mut self, file: &str, text: &str) {
        let mut bytes = text.as_bytes();
        // Messages are one line each; the place is said by line and column.
        let options = serde_saphyr::options! { with_snippet: false };
        let read = serde_saphyr::read_with_options::<_, Value>(&mut bytes, options);
        for (value, number) in read.zip(1..) {
            let origin = Origin {
                file: file.to_owned(),
                number,
            };
            match value {
                Ok(value) => self.add(origin, value),
                Err(error) => self.mistakes.push(Mistake {
                    place: origin.to_string(),
                    text: format!("{error}; correct the YAML there"),
                }),
            }
        }
    }

    fn add(&mut self, origin: Origin, value: Value) {
        // `kubectl get -o yaml` gives lists, and what it gives can be given back.
        if value.get("kind").and_then(Value::as_str) == Some("List")
            && let Some(items) = value.get("items").and_then(Value::as_array)
        {
            for item in items {
                self.add(origin.clone(), item.clone());
            }
            return;
        }
        let document = Document { origin, value };
        match shape(&document) {
            Ok(()) => self.documents.push(document),
            Err(text) => self.mistakes.push(Mistake {
                place: document.origin.to_string(),
                text,
            }),
        }
    }
}

/// Whether a document says what object it is.
fn shape(document: &Document) -> Result<(), String> {
    if !document.value.is_object() {
        return Err(
            "it is not an object: each document must be one, with apiVersion, kind and metadata.name"
                .to_owned(),
        );
    }
    for (pointer, remedy) in [
        (
            "/apiVersion",
            "write the group and version of the kind, for example agents.proompteng.ai/v1alpha1",
        ),
        ("/kind", "write the kind of the object, for example AgentRun"),
        (
            "/metadata/name",
            "give the object a name, by which it is found again",
        ),
    ] {
        if document.text(pointer).is_empty() {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            return Err(format!("{field} is missing, or no text: {remedy}"));
        }
    }
    Ok(())
}

fn content(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The file itself, or the manifests below a folder in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let about = fs::metadata(path).map_err(|error| format!("it cannot be read: {error}"))?;
    if !about.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
            let (path, about) = (entry.path(), entry.file_type());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match about {
                // Links are not followed, so that no circle can be walked.
                Ok(about) if about.is_dir() && !hidden => folders.push(path),
                Ok(about) if about.is_file() && !hidden && is_manifest(&path) => found.push(path),
                _ => {}
            }
            if found.len() > FILES_MAX {
                return Err(format!(
                    "it holds more than {FILES_MAX} manifests: give a smaller folder"
                ));
            }
        }
    }
    found.sort();
    if found.is_empty() {
        return Err("it holds no file that ends in .yaml, .yml or .json".to_owned());
    }
    Ok(found)
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|ending| ending.to_str())
        .is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending))
}

/// A text of the command line: itself, what a file has (`@FILE`), or standard input (`-`).
pub fn text_argument(text: &str) -> Result<String, Error> {
    let bounded = |read: io::Result<String>, what: &str| {
        let text = read.map_err(|error| Error::Validation(format!("{what} cannot be read: {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Error::Validation(format!(
                "{what} has more than {} MiB",
                FILE_BYTES_MAX / (1024 * 1024)
            )));
        }
        Ok(text)
    };
    if text == "-" {
        let mut all = String::new();
        let read = io::stdin()
            .lock()
            .take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut all);
        return bounded(read.map(|_| all), "standard input");
    }
    match text.strip_prefix('@') {
        Some(path) => bounded(content(Path::new(path)), path),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Manifests {
        let mut manifests = Manifests::default();
        manifests.parse("f.yaml", text);
        manifests
    }

    #[test]
    fn lists_are_taken_apart_and_empty_documents_passed_over() {
        let text = "---\n---\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, \
                    kind: ConfigMap, metadata: {name: b}}\n";
        let names: Vec<String> = parsed(text)
            .whole()
            .expect("documents")
            .iter()
            .map(|document| document.name().to_owned())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn what_is_no_object_is_told_with_its_place() {
        for (text, words) in [
            ("just words", "it is not an object"),
            ("kind: AgentRun", "apiVersion is missing"),
            ("apiVersion: v1\nkind: 5", "kind is missing, or no text"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {}",
                "metadata.name is missing",
            ),
            ("a: [", "correct the YAML there"),
        ] {
            let error = parsed(text).whole().expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
            assert!(error.contains("f.yaml, document 1"), "{error}");
        }
        assert!(parsed("").whole().is_err());
    }
}
