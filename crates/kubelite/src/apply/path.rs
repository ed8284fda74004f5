//! Sets of field paths: who owns what in an object.
//!
//! A set is a tree. Its names borrow from the objects and the stored `managedFields` that it was made from, so that the
//! bookkeeping of a write builds no strings.

use std::{
    borrow::Cow,
    cmp::Ordering,
    fmt::{self, Write},
};

use serde_json::{Number, Value};

/// A JSON value inside a path element, ordered as Kubernetes orders values: numbers, strings, booleans, lists, maps, null.
#[derive(Clone, Debug)]
pub(super) struct Literal<'a>(pub(super) Cow<'a, Value>);

impl Ord for Literal<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values(&self.0, &other.0)
    }
}

impl PartialOrd for Literal<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Literal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal<'_> {}

/// A total order of JSON values, in which the numbers 1 and 1.0 are the same.
pub(super) fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let mut pairs = left
                .iter()
                .zip(right)
                .map(|(left, right)| compare_values(left, right));
            pairs
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let mut pairs = left
                .iter()
                .zip(right)
                .map(|((left_key, left), (right_key, right))| {
                    left_key.cmp(right_key).then_with(|| compare_values(left, right))
                });
            pairs
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Whether two values mean the same. Most are equal to the letter, which is cheaper to find out.
pub(super) fn same_value(left: &Value, right: &Value) -> bool {
    left == right || compare_values(left, right).is_eq()
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    if let (Some(left), Some(right)) = (left.as_i128(), right.as_i128()) {
        return left.cmp(&right);
    }
    let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

/// One step into a value. The order of the variants is the order in which Kubernetes sorts them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum PathElement<'a> {
    /// A member of an object.
    Field(&'a str),
    /// An item of a keyed list, by its key fields, which are sorted by name.
    Key(Vec<(Cow<'a, str>, Literal<'a>)>),
    /// An item of a set, by its value.
    Value(Literal<'a>),
    /// An item by its position. Nothing here makes one, but a stored set may hold one.
    Index(i64),
}

impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", value.0)?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(position) => write!(f, "[{position}]"),
        }
    }
}

/// A node of a set: whether the path up to here is in the set, and what below it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Node<'a> {
    pub(super) member: bool,
    pub(super) children: FieldSet<'a>,
}

impl Node<'_> {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

/// A set of paths. Entries are sorted and none is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct FieldSet<'a> {
    entries: Vec<(PathElement<'a>, Node<'a>)>,
}

impl<'a> FieldSet<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The set with these entries, in any order. Empty nodes are left out; of two for one element, the later counts.
    pub(super) fn from_entries(mut entries: Vec<(PathElement<'a>, Node<'a>)>) -> Self {
        entries.retain(|(_, node)| !node.is_empty());
        if !entries.is_sorted_by(|(left, _), (right, _)| left < right) {
            entries.reverse();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            entries.dedup_by(|(later, _), (first, _)| later == first);
        }
        Self { entries }
    }

    /// Adds a path. Its parents do not become members.
    pub(super) fn insert(&mut self, path: &[PathElement<'a>]) {
        let Some((element, rest)) = path.split_first() else {
            return;
        };
        let at = match self.position(element) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (element.clone(), Node::default()));
                at
            }
        };
        if let Some((_, node)) = self.entries.get_mut(at) {
            if rest.is_empty() {
                node.member = true;
            } else {
                node.children.insert(rest);
            }
        }
    }

    fn position(&self, element: &PathElement<'_>) -> Result<usize, usize> {
        self.entries.binary_search_by(|(own, _)| own.cmp(element))
    }

    pub(super) fn get(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        let at = self.position(element).ok()?;
        self.entries.get(at).map(|(_, node)| node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(PathElement<'a>, Node<'a>)> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&PathElement<'a>, &mut Node<'a>)> {
        self.entries.iter_mut().map(|(element, node)| (&*element, node))
    }

    /// What is in either set.
    #[must_use]
    pub(super) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        let mut right = other.entries.into_iter().peekable();
        for (element, mut node) in self.entries {
            while let Some(smaller) = right.next_if(|(theirs, _)| *theirs < element) {
                entries.push(smaller);
            }
            if let Some((_, theirs)) = right.next_if(|(theirs, _)| *theirs == element) {
                node.member |= theirs.member;
                node.children = node.children.union(theirs.children);
            }
            entries.push((element, node));
        }
        entries.extend(right);
        Self { entries }
    }

    /// What is in both sets.
    #[must_use]
    pub(super) fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let entries = self.entries.iter().filter_map(|(element, node)| {
            let theirs = other.get(element)?;
            let both = Node {
                member: node.member && theirs.member,
                children: node.children.intersection(&theirs.children),
            };
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            entries: entries.collect(),
        }
    }

    /// Whether every path of this set is in the other one.
    pub(super) fn is_subset_of(&self, other: &FieldSet<'_>) -> bool {
        self.entries.iter().all(|(element, node)| {
            other.get(element).is_some_and(|theirs| {
                (theirs.member || !node.member) && node.children.is_subset_of(&theirs.children)
            })
        })
    }

    /// Takes the members of the other set out of this one, and says whether there were any.
    ///
    /// A path is not below itself: taking out `a` leaves `a.b` in the set.
    pub(super) fn subtract(&mut self, other: &FieldSet<'_>) -> bool {
        self.subtract_with(other, |node, theirs| {
            let mut changed = node.member && theirs.member;
            node.member &= !theirs.member;
            changed |= node.children.subtract(&theirs.children);
            changed
        })
    }

    /// Like `subtract`, but with a path goes everything below it.
    pub(super) fn subtract_recursively(&mut self, other: &FieldSet<'_>) -> bool {
        self.subtract_with(other, |node, theirs| {
            if theirs.member {
                *node = Node::default();
                return true;
            }
            node.children.subtract_recursively(&theirs.children)
        })
    }

    fn subtract_with(
        &mut self,
        other: &FieldSet<'_>,
        take: impl Fn(&mut Node<'a>, &Node<'_>) -> bool,
    ) -> bool {
        if self.is_empty() || other.is_empty() {
            return false;
        }
        let mut changed = false;
        self.entries.retain_mut(|(element, node)| {
            if let Some(theirs) = other.get(element) {
                changed |= take(node, theirs);
            }
            !node.is_empty()
        });
        changed
    }

    /// Whether every member of the other set is one of this.
    pub(super) fn contains(&self, other: &FieldSet<'_>) -> bool {
        other.entries.iter().all(|(element, theirs)| {
            self.get(element).is_some_and(|node| {
                (node.member || !theirs.member) && node.children.contains(&theirs.children)
            })
        })
    }

    /// The paths in the set as text, a level's members before what is below them, which is how conflicts are listed.
    ///
    /// A path repeats all the names above it, so that a set with long names can print as very much more than it takes.
    /// The list ends when its text has used up the budget.
    pub(super) fn paths(&self, budget: &mut usize) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), budget, &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut String, budget: &mut usize, paths: &mut Vec<String>) {
        for (element, _) in self.entries.iter().filter(|(_, node)| node.member) {
            if *budget == 0 {
                return;
            }
            let path = format!("{prefix}{element}");
            *budget = budget.saturating_sub(path.len());
            paths.push(path);
        }
        for (element, node) in &self.entries {
            let length = prefix.len();
            prefix.push_str(&element.to_string());
            node.children.collect_paths(prefix, budget, paths);
            prefix.truncate(length);
        }
    }

    /// All the paths in the set.
    #[cfg(test)]
    pub(super) fn all_paths(&self) -> Vec<String> {
        let mut budget = usize::MAX;
        self.paths(&mut budget)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(paths: &[&[&'static str]]) -> FieldSet<'static> {
        let mut set = FieldSet::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::Field(name)).collect();
            set.insert(&path);
        }
        set
    }

    fn minus(
        left: &[&[&'static str]],
        right: &[&[&'static str]],
        take: fn(&mut FieldSet<'static>, &FieldSet<'_>) -> bool,
    ) -> Vec<String> {
        let mut left = set(left);
        take(&mut left, &set(right));
        left.all_paths()
    }

    #[test]
    fn parents_of_an_inserted_path_are_not_members() {
        assert_eq!(set(&[&["a", "b"]]).all_paths(), [".a.b"]);
        assert_eq!(set(&[&["a", "b"], &["a"]]).all_paths(), [".a", ".a.b"]);
        assert!(set(&[&[]]).is_empty());
    }

    #[test]
    fn union_and_intersection_look_at_members_only() {
        let (left, right) = (
            set(&[&["a"], &["b", "c"], &["e"]]),
            set(&[&["a", "x"], &["b", "c"], &["b", "d"]]),
        );
        assert_eq!(left.intersection(&right).all_paths(), [".b.c"]);
        assert_eq!(
            left.union(right).all_paths(),
            [".a", ".e", ".a.x", ".b.c", ".b.d"]
        );
    }

    #[test]
    fn plain_difference_keeps_what_is_below_a_path() {
        assert_eq!(
            minus(&[&["a"], &["a", "b"]], &[&["a"]], FieldSet::subtract),
            [".a.b"]
        );
        assert_eq!(
            minus(&[&["a"], &["a", "b"]], &[&["a", "b"]], FieldSet::subtract),
            [".a"]
        );
        assert!(minus(&[&["a", "b"]], &[&["a", "b"]], FieldSet::subtract).is_empty());
    }

    #[test]
    fn recursive_difference_takes_what_is_below_a_path() {
        let take = FieldSet::subtract_recursively;
        assert!(minus(&[&["a"], &["a", "b"], &["a", "c", "d"]], &[&["a"]], take).is_empty());
        assert_eq!(minus(&[&["a"], &["a", "b"]], &[&["a", "b"]], take), [".a"]);
    }

    #[test]
    fn difference_says_whether_anything_was_taken() {
        assert!(set(&[&["a"]]).subtract(&set(&[&["a"]])));
        assert!(!set(&[&["a", "b"]]).subtract(&set(&[&["a"], &["c"]])));
        assert!(!set(&[&["a"]]).subtract_recursively(&set(&[&["a", "b"]])));
    }

    #[test]
    fn containment_is_of_every_member() {
        let whole = set(&[&["a"], &["a", "b"], &["c", "d"]]);
        assert!(whole.contains(&set(&[&["a", "b"], &["c", "d"]])));
        assert!(!whole.contains(&set(&[&["c"]])));
        assert!(!whole.contains(&set(&[&["a", "c"]])));
        assert!(whole.contains(&FieldSet::default()));
    }

    #[test]
    fn values_are_ordered_by_type_and_numbers_by_size() {
        let ascending = [
            json!(-1),
            json!(1.5),
            json!(80),
            json!(443),
            json!("a"),
            json!(false),
            json!(true),
            json!([1]),
        ];
        assert!(ascending.is_sorted_by(|left, right| compare_values(left, right).is_lt()));
        assert!(compare_values(&json!([1]), &json!({})).is_lt());
        assert!(compare_values(&json!({"a": 1}), &json!({"a": 1, "b": 1})).is_lt());
        assert!(compare_values(&json!({}), &json!(null)).is_lt());
        assert!(same_value(&json!({"a": [1]}), &json!({"a": [1.0]})));
        assert!(!same_value(&json!(u64::MAX), &json!(-1)));
    }

    #[test]
    fn entries_in_any_order_become_a_sorted_set() {
        let entry = |name, member| {
            (
                PathElement::Field(name),
                Node {
                    member,
                    ..Node::default()
                },
            )
        };
        let set = FieldSet::from_entries(vec![entry("b", true), entry("a", true), entry("c", false)]);
        assert_eq!(set.all_paths(), [".a", ".b"]);
    }

    #[test]
    fn a_list_of_paths_ends_with_its_budget() {
        let set = set(&[&["a", "b"], &["a", "c"], &["d"]]);
        let mut budget = 3;
        assert_eq!(set.paths(&mut budget), [".d", ".a.b"]);
        assert_eq!(budget, 0);
    }

    #[test]
    fn elements_print_as_conflicts_name_them() {
        let literal = |value| Literal(Cow::Owned(value));
        let key = vec![
            (Cow::Borrowed("name"), literal(json!("a\"b"))),
            (Cow::Borrowed("port"), literal(json!(80))),
        ];
        assert_eq!(PathElement::Key(key).to_string(), r#"[name="a\"b",port=80]"#);
        assert_eq!(PathElement::Value(literal(json!("x"))).to_string(), r#"[="x"]"#);
        assert_eq!(PathElement::Index(3).to_string(), "[3]");
    }
}
