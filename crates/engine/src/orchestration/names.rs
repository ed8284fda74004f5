//! Which name somebody may have meant.

/// How many letters of a name may be wrong for it to be a guess: a third of them.
const WRONG_PART: usize = 3;

/// The name that is nearest to what was written, if any is near; the first of several.
pub(super) fn nearest<'n>(written: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let length = written.chars().count();
    let (distance, name) = names
        .map(|name| (distance(written, name), name))
        .min_by_key(|(distance, _)| *distance)?;
    let longer = length.max(name.chars().count());
    (distance <= longer.div_ceil(WRONG_PART)).then_some(name)
}

/// How many letters have to be added, dropped or replaced, where upper and lower case are the same.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.to_lowercase().chars().enumerate() {
        let mut next = vec![line + 1];
        let mut left = line + 1;
        for ((pair, theirs), _) in row.windows(2).zip(&other).zip(1..) {
            let (diagonal, up) = match pair {
                [diagonal, up] => (*diagonal, *up),
                _ => continue,
            };
            left = (diagonal + usize::from(letter != *theirs))
                .min(up + 1)
                .min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_guessed_and_a_far_one_is_not() {
        let names = ["build", "test", "deploy-canary"];
        for (written, meant) in [
            ("builds", Some("build")),
            ("Build", Some("build")),
            ("tests", Some("test")),
            ("deploy_canary", Some("deploy-canary")),
            ("lint", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names.into_iter()), meant, "{written}");
        }
    }

    #[test]
    fn distances_count_letters() {
        for (one, other, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("über", "uber", 1),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
