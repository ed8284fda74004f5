//! The status of a CustomResourceDefinition: which of its names were accepted and whether it is served.

use serde_json::{Value, json};

use super::look;

/// The name of a definition that another one in its group has already.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameConflict {
    pub name: ConflictingName,
    /// What is in use, such as `widgets`.
    pub value: String,
}

/// Which of the names it is. The words are the reasons of the condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr)]
pub enum ConflictingName {
    #[strum(serialize = "PluralConflict")]
    Plural,
    #[strum(serialize = "SingularConflict")]
    Singular,
    #[strum(serialize = "ShortNamesConflict")]
    ShortNames,
    #[strum(serialize = "KindConflict")]
    Kind,
    #[strum(serialize = "ListKindConflict")]
    ListKind,
}

/// The last of a definition's names that another definition of the same group has accepted already, if any.
///
/// The last one, because Kubernetes overwrites the reason with each conflict that it finds.
pub fn name_conflict<'a>(
    definition: &Value,
    others: impl IntoIterator<Item = &'a Value>,
) -> Option<NameConflict> {
    let group = look::text(definition, "spec.group");
    let own = look::text(definition, "metadata.name");
    let mut resources: Vec<&str> = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for other in others {
        if look::text(other, "spec.group") != group || look::text(other, "metadata.name") == own {
            continue;
        }
        resources.push(look::text(other, "status.acceptedNames.plural"));
        resources.push(look::text(other, "status.acceptedNames.singular"));
        resources.extend(
            look::list(other, "status.acceptedNames.shortNames")
                .iter()
                .filter_map(Value::as_str),
        );
        kinds.push(look::text(other, "status.acceptedNames.kind"));
        kinds.push(look::text(other, "status.acceptedNames.listKind"));
    }
    let wanted = |path: &str| look::text(definition, path).to_owned();
    let mut candidates = vec![
        (ConflictingName::Plural, wanted("spec.names.plural"), &resources),
        (
            ConflictingName::Singular,
            wanted("spec.names.singular"),
            &resources,
        ),
    ];
    for short in look::list(definition, "spec.names.shortNames")
        .iter()
        .filter_map(Value::as_str)
    {
        candidates.push((ConflictingName::ShortNames, short.to_owned(), &resources));
    }
    candidates.push((ConflictingName::Kind, wanted("spec.names.kind"), &kinds));
    candidates.push((ConflictingName::ListKind, wanted("spec.names.listKind"), &kinds));
    candidates
        .into_iter()
        .rev()
        .find(|(_, value, used)| !value.is_empty() && used.contains(&value.as_str()))
        .map(|(name, value, _)| NameConflict { name, value })
}

/// The status that a definition has once its names have been looked at.
pub fn crd_status(definition: &Value, conflict: Option<&NameConflict>, now: &str) -> Value {
    let mut status = definition
        .get("status")
        .filter(|status| status.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}));
    match conflict {
        None => {
            status["acceptedNames"] = definition["spec"]["names"].clone();
            set_condition(
                &mut status,
                "NamesAccepted",
                "True",
                "NoConflicts",
                "no conflicts found",
                now,
            );
            set_condition(
                &mut status,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            );
        }
        Some(conflict) => {
            let message = format!("\"{}\" is already in use", conflict.value);
            set_condition(
                &mut status,
                "NamesAccepted",
                "False",
                conflict.name.into(),
                &message,
                now,
            );
            if status.get("acceptedNames").is_none_or(Value::is_null) {
                status["acceptedNames"] = json!({"kind": "", "plural": ""});
            }
            // What was once established stays so: its objects are still there.
            let established = look::list(&status, "conditions")
                .iter()
                .any(|one| one["type"] == "Established");
            if !established {
                set_condition(
                    &mut status,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
        }
    }
    let storage = look::list(definition, "spec.versions")
        .iter()
        .find(|version| look::flag(version, "storage"));
    if let Some(name) = storage.map(|version| look::text(version, "name")) {
        let mut stored = look::list(&status, "storedVersions").to_vec();
        if !stored.iter().any(|known| known == name) {
            stored.push(json!(name));
        }
        status["storedVersions"] = stored.into();
    }
    status
}

fn set_condition(status: &mut Value, kind: &str, state: &str, reason: &str, message: &str, now: &str) {
    let mut conditions = look::list(status, "conditions").to_vec();
    let known = conditions.iter_mut().find(|condition| condition["type"] == kind);
    match known {
        Some(condition) => {
            if condition["status"] != state || condition["lastTransitionTime"].is_null() {
                condition["lastTransitionTime"] = json!(now);
            }
            condition["status"] = json!(state);
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
        }
        None => conditions.push(json!({
            "type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": now,
        })),
    }
    status["conditions"] = conditions.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": format!("{name}.example.com")},
            "spec": {
                "group": "example.com", "versions": [{"name": "v1", "storage": true}],
                "names": {"plural": name, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["w"]},
            },
        })
    }

    #[test]
    fn accepted_definition_is_established() {
        let widgets = definition("widgets", "Widget");
        let status = crd_status(&widgets, None, "2024-05-01T12:00:00Z");
        assert_eq!(
            status,
            json!({
                "acceptedNames": widgets["spec"]["names"],
                "conditions": [
                    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found", "lastTransitionTime": "2024-05-01T12:00:00Z"},
                    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted", "lastTransitionTime": "2024-05-01T12:00:00Z"},
                ],
                "storedVersions": ["v1"],
            })
        );
    }

    #[test]
    fn a_second_look_keeps_the_times_of_what_did_not_change() {
        let mut widgets = definition("widgets", "Widget");
        widgets["status"] = crd_status(&widgets, None, "2024-05-01T12:00:00Z");
        assert_eq!(
            crd_status(&widgets, None, "2024-06-01T12:00:00Z"),
            widgets["status"]
        );
    }

    #[test]
    fn a_name_in_use_is_refused_and_named() {
        let mut widgets = definition("widgets", "Widget");
        widgets["status"] = crd_status(&widgets, None, "2024-05-01T12:00:00Z");
        let mut gears = definition("gears", "Gear");
        let conflict = name_conflict(&gears, [&widgets, &gears]).unwrap();
        assert_eq!(
            conflict,
            NameConflict {
                name: ConflictingName::ShortNames,
                value: "w".into()
            }
        );
        let status = crd_status(&gears, Some(&conflict), "2024-05-01T12:00:00Z");
        assert_eq!(status["conditions"][0]["reason"], "ShortNamesConflict");
        assert_eq!(status["conditions"][0]["message"], "\"w\" is already in use");
        assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
        gears["spec"]["names"]["shortNames"] = json!([]);
        assert_eq!(name_conflict(&gears, [&widgets]), None);
    }

    #[test]
    fn names_in_another_group_do_not_clash() {
        let mut widgets = definition("widgets", "Widget");
        widgets["status"] = crd_status(&widgets, None, "2024-05-01T12:00:00Z");
        let mut other = definition("widgets", "Widget");
        other["spec"]["group"] = json!("other.example.com");
        assert_eq!(name_conflict(&other, [&widgets]), None);
    }
}
