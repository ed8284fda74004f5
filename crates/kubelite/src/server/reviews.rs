//! Review kinds: questions that a create answers. Nothing is stored.

use serde_json::{Value, json};

use crate::{
    builtin::Builtin,
    clock,
    server::{Core, auth, target::Caller},
};

impl Core {
    /// The answer to a review, in the object that asked.
    pub(super) fn review(&self, kind: Builtin, caller: &Caller, mut object: Value) -> Value {
        let status = match kind {
            Builtin::SelfSubjectReview => json!({ "userInfo": user_info(caller) }),
            // Whoever is known may do everything here, as `system:masters` may in a cluster.
            Builtin::SelfSubjectAccessReview => json!({ "allowed": true }),
            Builtin::TokenReview => {
                let secret = object.pointer("/spec/token").and_then(Value::as_str).unwrap_or("");
                match auth::identify(&self.tokens, secret) {
                    Some(known) => json!({ "authenticated": true, "user": user_info(known) }),
                    None => json!({ "error": "[invalid bearer token]", "user": {} }),
                }
            }
            _ => Value::Null,
        };
        let now = clock::seconds(self.clock.now());
        if let Value::Object(map) = &mut object {
            map.insert("status".to_owned(), status);
            let metadata = map.entry("metadata").or_insert_with(|| json!({}));
            if !metadata.is_object() {
                *metadata = json!({});
            }
            metadata["creationTimestamp"] = if kind == Builtin::SelfSubjectReview { now.into() } else { Value::Null };
        }
        object
    }
}

fn user_info(caller: &Caller) -> Value {
    let mut groups = caller.groups.clone();
    if !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    json!({ "username": caller.user, "groups": groups })
}
