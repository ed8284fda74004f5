//! Which version of a group is preferred.

use std::cmp::Ordering;

/// Kubernetes' order of versions, the preferred one first: v2, v1, v2beta1, v1beta2, v1alpha1, and then all that are
/// not of this form, by name.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum Stability {
    Alpha,
    Beta,
    Stable,
}

fn parse_version(version: &str) -> Option<(Stability, u32, u32)> {
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        if plain { digits.parse().ok() } else { None }
    };
    let rest = version.strip_prefix('v')?;
    let digits = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at_checked(digits)?;
    let major = number(major)?;
    if rest.is_empty() {
        return Some((Stability::Stable, major, 0));
    }
    if let Some(minor) = rest.strip_prefix("alpha") {
        return Some((Stability::Alpha, major, number(minor)?));
    }
    Some((Stability::Beta, major, number(rest.strip_prefix("beta")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_then_number() {
        let mut versions = [
            "v1alpha1",
            "foo10",
            "v10",
            "v1",
            "v2beta1",
            "v12alpha1",
            "v3beta2",
            "v1beta10",
            "foo1",
            "v2",
            "v+3",
        ];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v3beta2",
                "v2beta1",
                "v1beta10",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10",
                "v+3"
            ]
        );
    }
}
