//! How far a cache has come: resource versions as numbers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A `resourceVersion`, which grows with every write to the objects of a kind.
///
/// Since release 1.35 Kubernetes promises that these are whole numbers which can be compared; `docs/decisions/0011` says
/// what that is used for. A version that is no number counts as the oldest, so that nothing ever waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// The version of an object.
    pub fn of(metadata: &ObjectMeta) -> Self {
        metadata
            .resource_version
            .as_deref()
            .map(Self::parse)
            .unwrap_or_default()
    }

    pub fn parse(text: &str) -> Self {
        text.parse().map(Self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_and_not_as_text() {
        assert!(ResourceVersion::parse("10") > ResourceVersion::parse("9"));
    }

    #[test]
    fn a_version_that_is_no_number_is_the_oldest() {
        assert_eq!(ResourceVersion::parse("opaque"), ResourceVersion::default());
        assert!(ResourceVersion::parse("opaque") < ResourceVersion::parse("1"));
    }
}
