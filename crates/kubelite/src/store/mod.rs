//! Where objects live.

use std::sync::Arc;

/// Which collection an object lives in: `agents.example.com/widgets`, or `/pods` for the core group.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Collection(Arc<str>);

impl Collection {
    pub fn new(group: &str, plural: &str) -> Self {
        Self(format!("{group}/{plural}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
