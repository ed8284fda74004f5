//! The word that was probably meant.

/// More letters than this apart, two words have nothing to do with each other.
const DISTANCE_MAX: usize = 3;

/// Of the candidates, the one that is spelled most like the word, if one is like it at all: a third of its letters may differ.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let bound = word.chars().count().div_ceil(3).clamp(1, DISTANCE_MAX);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= bound && *distance < candidate.chars().count())
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be changed, added, taken away, or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let at = |row: &[usize], position: usize| row.get(position).copied().unwrap_or(usize::MAX / 2);
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    let mut previous = None;
    for (line, letter) in one.chars().enumerate() {
        let mut next = vec![line + 1];
        for (position, candidate) in other.iter().enumerate() {
            let changed = at(&row, position) + usize::from(*candidate != letter);
            let removed = at(&row, position + 1) + 1;
            let added = at(&next, position) + 1;
            let mut least = changed.min(removed).min(added);
            let neighbour = position.checked_sub(1).and_then(|position| other.get(position));
            if previous == Some(*candidate) && neighbour == Some(&letter) {
                least = least.min(at(&before, position - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
        previous = Some(letter);
    }
    at(&row, other.len())
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
        assert_eq!(nearest("pods", ["ws", "tool"]), None);
        assert_eq!(nearest("waut", ["wait", "list"]), Some("wait"));
    }
}
