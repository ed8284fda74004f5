//! How names of Jobs, ConfigMaps and child runs are made from the names of what they belong to.
//!
//! A name is a pure function of its owner, so that creating an object twice meets the first one instead of making a
//! second. The rule is public: other programs find Jobs by it.

use std::fmt::{self, Write as _};

use sha1::{Digest as _, Sha1};
use sha2::Sha256;

/// The most characters a DNS label may have. Names of runs are values of labels and stems of pod names, hence this bound.
pub const NAME_MAX: usize = 63;
/// Bytes of the hash that a shortened name ends with, two hexadecimal digits each.
const HASH_BYTES: usize = 4;
/// What is left of a long name before the dash and the hash.
const STEM_MAX: usize = NAME_MAX - 1 - 2 * HASH_BYTES;
/// Bytes of the hash in the name of a run that was submitted: so many that no two keys meet by accident.
const SUBMISSION_HASH_BYTES: usize = 8;

/// A name of at most 63 lower-case letters, digits and dashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsLabel(String);

impl DnsLabel {
    /// Makes `<base>-<suffix>` a legal name: lower case, everything but letters, digits and dashes replaced by a dash,
    /// no dash at either end. What is longer than 63 characters is cut, and ends with a hash of the whole.
    pub fn join(base: &str, suffix: &str) -> Self {
        let whole = sanitised(&format!("{base}-{suffix}"));
        if whole.len() <= NAME_MAX {
            return Self(whole);
        }
        let digest = Sha1::digest(whole.as_bytes());
        // The sanitised name is ASCII, so a character is a byte.
        let mut short: String = whole.chars().take(STEM_MAX).collect();
        short.push('-');
        short.push_str(&hexadecimal(digest.iter().take(HASH_BYTES)));
        Self(short)
    }

    /// The name of the child that one attempt of an orchestration's step creates: `<run>-<step>-<attempt>`.
    pub fn child(run: &str, step: &str, attempt: u32) -> Self {
        Self::join(run, &format!("{step}-{attempt}"))
    }

    /// The name of a run that was submitted with an idempotency key: `<subject>-<hash>`, where the subject is the name of the
    /// Agent, Orchestration or Tool. Submitting again with the same key meets the first run, whoever submits and however
    /// often: the API server is the only memory that this needs.
    pub fn submission(namespace: &str, subject: &str, key: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [namespace, subject, key] {
            // The length keeps two parts from being taken for two others.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        Self::join(
            subject,
            &hexadecimal(hash.finalize().iter().take(SUBMISSION_HASH_BYTES)),
        )
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DnsLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DnsLabel> for String {
    fn from(name: DnsLabel) -> Self {
        name.0
    }
}

/// Makes any text a legal value of a label: as in [`DnsLabel::join`] but cut without a hash, and `unknown` if nothing is
/// left.
pub fn label_value(text: &str) -> String {
    let cut: String = sanitised(text).chars().take(NAME_MAX).collect();
    match cut.trim_end_matches('-') {
        "" => "unknown".to_owned(),
        value => value.to_owned(),
    }
}

fn hexadecimal<'b>(bytes: impl Iterator<Item = &'b u8>) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn sanitised(text: &str) -> String {
    let replaced: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    replaced.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_and_made_legal() {
        for (base, suffix, expected) in [
            ("nightly", "job", "nightly-job"),
            (
                "Nightly_Build",
                "step-1-attempt-2",
                "nightly-build-step-1-attempt-2",
            ),
            ("-a.b-", "spec", "a-b--spec"),
            ("größe", "job", "gr--e-job"),
        ] {
            assert_eq!(DnsLabel::join(base, suffix).as_str(), expected);
        }
        assert_eq!(
            DnsLabel::child("release", "Build Image", 2).as_str(),
            "release-build-image-2"
        );
    }

    #[test]
    fn long_names_are_cut_and_keep_a_hash_of_the_whole() {
        let longest = DnsLabel::join(&"a".repeat(59), "job");
        assert_eq!(
            longest.as_str(),
            format!("{}-job", "a".repeat(59)),
            "63 characters are left alone"
        );

        let cut = DnsLabel::join(&"a".repeat(60), "job");
        // printf '%s-job' (60 times a) | sha1sum
        assert_eq!(cut.as_str(), format!("{}-b092de76", "a".repeat(54)));
        assert_eq!(cut.as_str().len(), NAME_MAX);
        assert_ne!(cut, DnsLabel::join(&"a".repeat(61), "job"));
    }

    #[test]
    fn a_submission_is_named_by_namespace_subject_and_key() {
        let name = DnsLabel::submission("agents", "coder", "issue-42");
        assert_eq!(name.as_str(), "coder-9eeadf0d9663f6a2");
        assert_eq!(name, DnsLabel::submission("agents", "coder", "issue-42"));
        for other in [
            DnsLabel::submission("team", "coder", "issue-42"),
            DnsLabel::submission("agents", "tester", "issue-42"),
            DnsLabel::submission("agents", "coder", "issue-43"),
        ] {
            assert_ne!(name, other);
        }
        let long = DnsLabel::submission("agents", &"a".repeat(200), "key");
        assert_eq!(long.as_str().len(), NAME_MAX);
    }

    #[test]
    fn label_values_are_never_empty_and_end_well() {
        assert_eq!(label_value("Claude Code"), "claude-code");
        assert_eq!(label_value("…"), "unknown");
        assert_eq!(label_value(&format!("{}-tail", "x".repeat(62))), "x".repeat(62));
    }
}
