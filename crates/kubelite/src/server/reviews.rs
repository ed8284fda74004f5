//! Review kinds: questions that a create answers. Nothing is stored.

use serde_json::Value;

use crate::{
    builtin::{self, Builtin, User},
    clock,
    server::{Core, auth},
};

impl Core {
    /// The answer to a review.
    pub(super) fn review(&self, kind: Builtin, user: &User, question: &Value) -> Value {
        match kind {
            Builtin::SelfSubjectReview => {
                builtin::self_subject_review(question, user, &clock::seconds(self.clock.now()))
            }
            Builtin::TokenReview => {
                let secret = question
                    .pointer("/spec/token")
                    .and_then(Value::as_str)
                    .unwrap_or("");
                builtin::token_review(question, auth::identify(&self.tokens, secret))
            }
            _ => builtin::self_subject_access_review(question),
        }
    }
}
