//! Where a page of a list ended, as a client keeps it: a key, not an offset, so that what comes or goes meanwhile shifts nothing.

use std::cmp::Reverse;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jangar_api::Kind;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    refusal::Refusal,
    world::{Filter, Place},
};

/// More than any cursor of ours has.
const CURSOR_MAX_BYTES: usize = 1_024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    /// Of which list.
    of: String,
    created: jiff::Timestamp,
    namespace: String,
    name: String,
}

/// Tells one list from another: the kind and the filter.
fn list_id(kind: Kind, filter: &Filter) -> String {
    let digest = Sha256::digest(format!("{kind:?} {filter:?}").as_bytes());
    URL_SAFE_NO_PAD.encode(digest.get(..9).unwrap_or_default())
}

/// The cursor of a place in this list.
pub(super) fn encode(kind: Kind, filter: &Filter, place: &Place) -> String {
    let cursor = Cursor {
        of: list_id(kind, filter),
        created: place.created.0,
        namespace: place.namespace.clone(),
        name: place.name.clone(),
    };
    // Texts and a time are always JSON.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&cursor).unwrap_or_default())
}

/// The place that a cursor stands for in this list.
pub(super) fn decode(kind: Kind, filter: &Filter, text: &str) -> Result<Place, Refusal> {
    let wrong =
        |wrong: &str| Refusal::field("cursor", text, wrong).remedy("leave it out to begin at the first page");
    if text.len() > CURSOR_MAX_BYTES {
        return Err(wrong("it is too long"));
    }
    let bytes = URL_SAFE_NO_PAD.decode(text);
    let bytes = bytes.map_err(|_| wrong("this is no cursor of ours"))?;
    let cursor: Cursor = serde_json::from_slice(&bytes).map_err(|_| wrong("this is no cursor of ours"))?;
    if cursor.of != list_id(kind, filter) {
        return Err(wrong("it is the cursor of another list, or of another filter"));
    }
    Ok(Place {
        created: Reverse(cursor.created),
        namespace: cursor.namespace,
        name: cursor.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_in_its_own_list_only() {
        let place = Place {
            created: Reverse(jiff::Timestamp::from_second(5).expect("a time")),
            namespace: "a".to_owned(),
            name: "x".to_owned(),
        };
        let filter = Filter::default();
        let text = encode(Kind::Agent, &filter, &place);
        assert_eq!(decode(Kind::Agent, &filter, &text), Ok(place));
        let other = Filter {
            phase: Some("Failed".to_owned()),
            ..Filter::default()
        };
        for (kind, filter, text) in [
            (Kind::AgentRun, &filter, text.as_str()),
            (Kind::Agent, &other, &text),
            (Kind::Agent, &filter, "x"),
            (Kind::Agent, &filter, "{}"),
            (Kind::Agent, &filter, ""),
            (Kind::Agent, &filter, &"A".repeat(5000)),
        ] {
            let refusal = decode(kind, filter, text).expect_err(text);
            assert!(refusal.to_string().starts_with("cursor="), "{refusal}");
        }
    }
}
