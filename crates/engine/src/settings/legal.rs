//! Which words Kubernetes takes as names, keys and values, so that a bad one is found at the start and not at the first run.

/// The most characters of a namespace, of a label's value, and of what follows the slash in its key.
const LABEL_MAX: usize = 63;
/// The most characters of the name of an object.
const NAME_MAX: usize = 253;

/// What a word stands for, which decides how it may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The name of a namespace.
    Namespace,
    /// The name of any other object.
    Name,
    /// The name of a scheduler, which is no object: Kubernetes takes any word.
    Word,
    LabelKey,
    /// A label's key in which `*` stands for any characters.
    LabelPattern,
    Image,
    /// An image in which `*` stands for any characters.
    ImagePattern,
    /// A repository with its owner, in which `*` stands for any characters.
    RepositoryPattern,
    /// The key of a value in a Secret or a ConfigMap, which is the name of a file as well.
    DataKey,
    /// The path of a directory in a container.
    Directory,
}

impl Rule {
    /// Whether the word may be used.
    pub(super) fn allows(self, word: &str) -> bool {
        match self {
            Self::Namespace => word.len() <= LABEL_MAX && is_dns_label(word),
            Self::Name => is_dns_name(word),
            Self::Word => !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic()),
            Self::LabelKey => is_label_key(word),
            Self::LabelPattern => consists_of(word, "-_./*"),
            Self::Image => consists_of(word, "-_./:@+[]"),
            Self::ImagePattern => consists_of(word, "-_./:@+[]*"),
            Self::RepositoryPattern => consists_of(word, "-_./~*"),
            Self::DataKey => word.len() <= NAME_MAX && consists_of(word, "-_.") && !word.starts_with(".."),
            Self::Directory => is_directory(word),
        }
    }

    /// One such word, as a message names it.
    pub(super) const fn one(self) -> &'static str {
        match self {
            Self::Namespace => "a name of a namespace (lower-case letters, digits and dashes, at most 63)",
            Self::Name => "a name of an object (lower-case letters, digits, dashes and dots, at most 253)",
            Self::Word => "a word without spaces",
            Self::LabelKey => "a key of a label, such as `team` or `example.com/team`",
            Self::LabelPattern => "a pattern of keys, such as `example.com/*`",
            Self::Image => "an image, such as `registry.example.com/agent:1`",
            Self::ImagePattern => "a pattern of images, such as `registry.example.com/*`",
            Self::RepositoryPattern => "a pattern of repositories, such as `example/*`",
            Self::DataKey => "a key of a Secret (letters, digits, dashes, dots and underscores, at most 253)",
            Self::Directory => "an absolute path below `/`, without `..` and colons",
        }
    }

    /// Several such words, as a message names them.
    pub(super) const fn many(self) -> &'static str {
        match self {
            Self::Namespace => "names of namespaces",
            Self::Name => "names of objects",
            Self::Word => "words without spaces",
            Self::LabelKey => "keys of labels, such as `example.com/team`",
            Self::LabelPattern => "patterns of keys, such as `example.com/*`",
            Self::Image => "images, such as `registry.example.com/agent:1`",
            Self::ImagePattern => "patterns of images, such as `registry.example.com/*`",
            Self::RepositoryPattern => "patterns of repositories, such as `example/*`",
            Self::DataKey => "keys of a Secret",
            Self::Directory => "absolute paths",
        }
    }
}

/// Whether the text may be the key of a label: a word, or a domain, a slash and a word.
pub(crate) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, word)) => is_dns_name(domain) && is_label_word(word),
        None => is_label_word(text),
    }
}

/// Whether the text may be the value of a label.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_word(text)
}

fn is_label_word(text: &str) -> bool {
    let ends_well = |c: char| c.is_ascii_alphanumeric();
    text.len() <= LABEL_MAX
        && text.starts_with(ends_well)
        && text.ends_with(ends_well)
        && consists_of(text, "-_.")
}

fn is_dns_name(text: &str) -> bool {
    text.len() <= NAME_MAX && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(small) && text.ends_with(small) && text.chars().all(|c| small(c) || c == '-')
}

fn is_directory(text: &str) -> bool {
    let below = text.trim_end_matches('/').strip_prefix('/');
    below.is_some_and(|path| {
        !path.is_empty()
            && !path.contains(':')
            && path.split('/').all(|part| !part.is_empty() && part != "..")
    })
}

/// Whether there is nothing in the text but letters, digits and these characters.
fn consists_of(text: &str, others: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_as_kubernetes_takes_them() {
        let long = "a".repeat(64);
        for (rule, legal, illegal) in [
            (
                Rule::Namespace,
                vec!["agents", "team-1", "0"],
                vec!["", "-a", "a-", "a.b", "A", "a_b", &long],
            ),
            (
                Rule::Name,
                vec!["runner", "a.b-c.d", &long],
                vec!["", "a..b", ".a", "a.", "a/b"],
            ),
            (Rule::Word, vec!["my/Scheduler"], vec!["", "two words", "größe"]),
            (
                Rule::LabelKey,
                vec!["team", "Team_1", "example.com/team"],
                vec![
                    "",
                    "example.com/",
                    "/team",
                    "a/b/c",
                    "team-",
                    "Example.com/x",
                    &long,
                ],
            ),
            (
                Rule::LabelPattern,
                vec!["*", "example.com/*"],
                vec!["", "{\"a\"", "a b"],
            ),
            (
                Rule::Image,
                vec!["busybox", "r.example:5000/a/b:1@sha256:0f"],
                vec!["", "a b", "a*"],
            ),
            (Rule::ImagePattern, vec!["r.example/*"], vec!["", "a,b"]),
        ] {
            for word in legal {
                assert!(rule.allows(word), "{rule:?} should allow {word}");
            }
            for word in illegal {
                assert!(!rule.allows(word), "{rule:?} should not allow {word}");
            }
        }
    }

    #[test]
    fn the_value_of_a_label_may_be_empty_but_its_key_may_not() {
        assert!(is_label_value("") && !is_label_key(""));
        assert!(is_label_value("v1.2") && !is_label_value("a/b"));
    }
}
