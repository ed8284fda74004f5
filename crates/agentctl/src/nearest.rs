//! The word that was probably meant.

/// More letters than this apart, two words have nothing to do with each other.
const DISTANCE_MAX: usize = 3;

/// Of the candidates, the one that is spelled most like the word, if one is like it at all.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let bound = DISTANCE_MAX.min(word.chars().count() / 2 + 1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be changed, added or taken away.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut next = vec![at + 1];
        for (position, candidate) in other.iter().enumerate() {
            let changed = row.get(position).copied().unwrap_or(0) + usize::from(*candidate != letter);
            let removed = row.get(position + 1).copied().unwrap_or(0) + 1;
            let added = next.get(position).copied().unwrap_or(0) + 1;
            next.push(changed.min(removed).min(added));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_its_word() {
        let words = ["agent", "agentrun", "tool"];
        assert_eq!(nearest("agnet", words), Some("agent"));
        assert_eq!(nearest("agentruns", words), Some("agentrun"));
        assert_eq!(nearest("deployment", words), None);
        assert_eq!(nearest("x", words), None);
    }
}
