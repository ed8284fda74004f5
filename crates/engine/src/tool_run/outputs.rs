//! What a tool left for others: `{"outputs": {…}}`, written to its termination message.

use jangar_api::reason::Reason;
use serde_json::Value;

use crate::decision::Rejection;

/// The most bytes of a termination message that a node keeps: the last ones. What is longer cannot be read any more.
const MESSAGE_MAX_BYTES: usize = 4096;

/// Whether what a tool wrote can be read. A text that does not look like JSON is a message for people, and leaves nothing.
pub(super) fn check(words: &str) -> Result<(), Rejection> {
    let text = words.trim();
    let read = serde_json::from_str::<Value>(text);
    // Bytes that are no text take more room when they have become one, so that this may be more than a node keeps.
    let is_cut = words.len() >= MESSAGE_MAX_BYTES && read.is_err();
    if is_cut && (text.starts_with('{') || text.ends_with('}')) {
        return Err(Rejection::new(
            Reason::OutputsTooLarge,
            format!(
                "the tool ended well, and wrote more to its termination message than the {MESSAGE_MAX_BYTES} bytes that a node \
                 keeps of one: write less, and leave large values where others can fetch them"
            ),
        ));
    }
    if !text.starts_with('{') {
        return Ok(());
    }
    let invalid = |problem: String| {
        let remedy = "write {\"outputs\": {\"NAME\": VALUE}}, or nothing";
        let message = format!("the tool ended well, and its termination message {problem}: {remedy}");
        Err(Rejection::new(Reason::InvalidOutputs, message))
    };
    match read {
        Err(error) => invalid(format!("is not JSON ({error})")),
        Ok(value) => match value.get("outputs") {
            None | Some(Value::Object(_)) => Ok(()),
            Some(_) => invalid("has outputs that are no object".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(words: &str) -> Option<Reason> {
        check(words).err().map(|rejection| rejection.reason)
    }

    #[test]
    fn outputs_are_an_object_and_anything_that_is_no_json_is_a_message() {
        for words in [
            "",
            "built 3 targets",
            "[1]",
            "  {\"outputs\": {\"image\": \"a\"}}\n",
            "{}",
            "{\"message\": \"x\"}",
        ] {
            assert_eq!(verdict(words), None, "{words}");
        }
        for words in [
            "{\"outputs\": 5}",
            "{\"outputs\": null}",
            "{\"outputs\": {",
            "{outputs}",
        ] {
            assert_eq!(verdict(words), Some(Reason::InvalidOutputs), "{words}");
        }
    }

    #[test]
    fn what_a_node_has_cut_was_too_large() {
        let whole = format!("{{\"outputs\": {{\"log\": \"{}\"}}}}\n", "x".repeat(5000));
        let last = &whole[whole.len() - MESSAGE_MAX_BYTES..];
        assert_eq!(verdict(last), Some(Reason::OutputsTooLarge));
        assert_eq!(
            verdict(&whole[..MESSAGE_MAX_BYTES]),
            Some(Reason::OutputsTooLarge)
        );
        assert_eq!(
            verdict(&whole[..MESSAGE_MAX_BYTES - 1]),
            Some(Reason::InvalidOutputs)
        );
        assert_eq!(
            verdict(&"x".repeat(MESSAGE_MAX_BYTES)),
            None,
            "a long text is a message"
        );
    }
}
