//! Answers to reviews: who am I, may I, and whose token is this.

use serde_json::{Value, json};

/// Who is asking.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    /// A part of the system itself, which may do everything.
    pub fn system(name: &str) -> Self {
        Self {
            name: format!("system:{name}"),
            uid: String::new(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        }
    }

    fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        info
    }
}

/// The answer to a `SelfSubjectReview`: the asker.
pub fn self_subject_review(review: &Value, user: &User, now: &str) -> Value {
    let mut answer = review.clone();
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("apiVersion".to_owned(), json!("authentication.k8s.io/v1"));
        answer.insert("kind".to_owned(), json!("SelfSubjectReview"));
        answer.insert("metadata".to_owned(), json!({"creationTimestamp": now}));
        answer.insert("status".to_owned(), json!({"userInfo": user.to_value()}));
    }
    answer
}

/// The answer to a `SelfSubjectAccessReview`. Whoever holds the token may do everything, so it is always yes.
pub fn self_subject_access_review(review: &Value) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": review.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": review.get("spec").cloned().unwrap_or_else(|| json!({})),
        "status": {"allowed": true},
    })
}

/// The answer to a `TokenReview`: the user that the token belongs to, or the reason why there is none.
pub fn token_review(review: &Value, user: Option<&User>) -> Value {
    let audiences = review.pointer("/spec/audiences").cloned();
    let mut status = match user {
        Some(user) => json!({"authenticated": true, "user": user.to_value()}),
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
    };
    if let (Some(audiences), true) = (audiences, user.is_some()) {
        status["audiences"] = audiences;
    }
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "metadata": review.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": review.get("spec").cloned().unwrap_or_else(|| json!({})),
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin() -> User {
        User {
            name: "admin".into(),
            uid: String::new(),
            groups: vec!["system:masters".into()],
        }
    }

    #[test]
    fn the_asker_learns_who_it_is() {
        let answer = self_subject_review(&json!({}), &admin(), "2024-05-01T12:00:00Z");
        assert_eq!(
            answer["status"]["userInfo"],
            json!({"username": "admin", "groups": ["system:masters"]})
        );
        assert_eq!(answer["metadata"]["creationTimestamp"], "2024-05-01T12:00:00Z");
    }

    #[test]
    fn access_is_granted_and_the_question_repeated() {
        let question = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let answer = self_subject_access_review(&question);
        assert_eq!(answer["spec"], question["spec"]);
        assert_eq!(answer["status"]["allowed"], true);
    }

    #[test]
    fn only_a_known_token_is_authenticated() {
        let question = json!({"spec": {"token": "t"}});
        assert_eq!(
            token_review(&question, Some(&admin()))["status"]["authenticated"],
            true
        );
        let unknown = token_review(&question, None);
        assert!(unknown["status"].get("authenticated").is_none());
        assert_eq!(unknown["status"]["error"], "[invalid bearer token]");
    }
}
