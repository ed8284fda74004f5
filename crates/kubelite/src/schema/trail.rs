//! The way from the root of a value to the node being looked at, kept on the stack while walking and turned into text
//! only when there is something to say about the node.

use crate::field::FieldPath;

/// One step, linked to the step before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trail<'a> {
    Root,
    /// A property, or an additional property where the message writes both alike.
    Child(&'a Trail<'a>, &'a str),
    /// An additional property where the message writes its key in brackets.
    Key(&'a Trail<'a>, &'a str),
    Index(&'a Trail<'a>, usize),
}

impl<'a> Trail<'a> {
    pub(super) fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    pub(super) fn child(&'a self, name: &'a str) -> Self {
        Self::Child(self, name)
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// `spec.steps[0].name`; empty at the root.
    pub(super) fn render(&self) -> String {
        let mut steps = Vec::new();
        let mut step = self;
        loop {
            match step {
                Self::Root => break,
                Self::Child(parent, _) | Self::Key(parent, _) | Self::Index(parent, _) => {
                    steps.push(step);
                    step = parent;
                }
            }
        }
        let mut text = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Self::Root => {}
                Self::Child(_, name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Self::Key(_, key) => {
                    text.push('[');
                    text.push_str(key);
                    text.push(']');
                }
                Self::Index(_, index) => {
                    text.push('[');
                    text.push_str(&index.to_string());
                    text.push(']');
                }
            }
        }
        text
    }

    /// The rendered trail below `base`.
    pub(super) fn below(&self, base: &FieldPath) -> FieldPath {
        let text = self.render();
        if text.is_empty() {
            base.clone()
        } else if text.starts_with('[') {
            FieldPath::new(format!("{}{text}", base.as_str()))
        } else {
            base.child(&text)
        }
    }
}
