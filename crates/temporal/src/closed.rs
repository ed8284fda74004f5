//! How a workflow ended, as its last event tells.

use jangar_engine::temporal::{
    call::{Closed, Returned},
    result::RESULT_MAX_BYTES,
};
use temporalio_common::protos::temporal::api::{
    common::v1::{Payload, Payloads},
    failure::v1::{Failure, failure::FailureInfo},
    history::v1::history_event::Attributes,
};

/// By which JSON is known among payloads.
pub(crate) const ENCODING: &str = "encoding";
pub(crate) const JSON: &[u8] = b"json/plain";
const NOTHING: &[u8] = b"binary/null";
/// The most characters of a text that a failure gives.
const TEXT_MAX: usize = 4096;
/// How deep the causes of a failure are looked at.
const CAUSES_MAX: usize = 8;

/// What the last event of an execution says.
pub(crate) enum Last {
    /// The workflow goes on as another execution.
    GoesOn {
        run_id: String,
    },
    Closed(Closed),
}

pub(crate) fn read(event: Attributes) -> Option<Last> {
    let goes_on = |run_id: String| (!run_id.is_empty()).then_some(Last::GoesOn { run_id });
    let (next, closed) = match event {
        Attributes::WorkflowExecutionContinuedAsNewEventAttributes(event) => {
            return goes_on(event.new_execution_run_id);
        }
        Attributes::WorkflowExecutionCompletedEventAttributes(event) => (
            event.new_execution_run_id,
            Closed::Completed(returned(event.result)),
        ),
        Attributes::WorkflowExecutionFailedEventAttributes(event) => (
            event.new_execution_run_id,
            failed(&event.failure.unwrap_or_default()),
        ),
        Attributes::WorkflowExecutionTimedOutEventAttributes(event) => {
            (event.new_execution_run_id, Closed::TimedOut)
        }
        Attributes::WorkflowExecutionCanceledEventAttributes(event) => {
            let words = match returned(event.details) {
                Returned::Json(details) => Some(bounded(&details.to_string())),
                Returned::Nothing | Returned::Hidden(_) => None,
            };
            (String::new(), Closed::Canceled { words })
        }
        Attributes::WorkflowExecutionTerminatedEventAttributes(event) => {
            let words = Some(bounded(&event.reason)).filter(|reason| !reason.is_empty());
            (String::new(), Closed::Terminated { words })
        }
        _ => return None,
    };
    Some(goes_on(next).unwrap_or(Last::Closed(closed)))
}

/// The failure, with the message of what caused it where it has none of its own to add.
fn failed(failure: &Failure) -> Closed {
    let mut kind = None;
    let mut messages: Vec<String> = Vec::new();
    let mut next = Some(failure);
    for _ in 0..CAUSES_MAX {
        let Some(failure) = next else { break };
        if !failure.message.is_empty() && !messages.contains(&failure.message) {
            messages.push(failure.message.clone());
        }
        if let Some(FailureInfo::ApplicationFailureInfo(info)) = &failure.failure_info
            && !info.r#type.is_empty()
        {
            kind.get_or_insert_with(|| bounded(&info.r#type));
        }
        next = failure.cause.as_deref();
    }
    let message = bounded(&messages.join(": "));
    Closed::Failed {
        kind,
        message: if message.is_empty() {
            "it gave no message".to_owned()
        } else {
            message
        },
    }
}

fn returned(payloads: Option<Payloads>) -> Returned {
    let Some(Payload { metadata, data, .. }) =
        payloads.and_then(|payloads| payloads.payloads.into_iter().next())
    else {
        return Returned::Nothing;
    };
    let encoding = metadata.get(ENCODING).map_or(JSON, Vec::as_slice);
    if encoding == NOTHING {
        return Returned::Nothing;
    }
    if encoding != JSON {
        return Returned::Hidden(format!(
            "it is {} and not json/plain",
            bounded(&String::from_utf8_lossy(encoding))
        ));
    }
    if data.len() > RESULT_MAX_BYTES {
        return Returned::Hidden(format!(
            "it has {} bytes, and {RESULT_MAX_BYTES} are taken over",
            data.len()
        ));
    }
    match serde_json::from_slice(&data) {
        Ok(value) => Returned::Json(value),
        Err(error) => Returned::Hidden(format!("it is no JSON ({error})")),
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use temporalio_common::protos::temporal::api::failure::v1::ApplicationFailureInfo;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "a server need not send any")]
    fn payload(encoding: &str, data: &[u8]) -> Option<Payloads> {
        Some(Payloads {
            payloads: vec![Payload {
                metadata: [(ENCODING.to_owned(), encoding.as_bytes().to_vec())].into(),
                data: data.to_vec(),
                ..Payload::default()
            }],
        })
    }

    #[test]
    fn a_result_is_json_or_says_why_it_is_not_shown() {
        assert_eq!(returned(None), Returned::Nothing);
        assert_eq!(returned(payload("binary/null", b"")), Returned::Nothing);
        assert_eq!(
            returned(payload("json/plain", b"{\"a\": 1}")),
            Returned::Json(json!({"a": 1}))
        );
        let large = vec![b'1'; RESULT_MAX_BYTES + 1];
        for (payload, word) in [
            (payload("binary/encrypted", b"x"), "binary/encrypted"),
            (payload("json/plain", b"{"), "no JSON"),
            (payload("json/plain", &large), "16385 bytes"),
        ] {
            let Returned::Hidden(why) = returned(payload) else {
                panic!("it is shown");
            };
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_failure_tells_its_type_and_what_caused_it() {
        let cause = Failure {
            message: "two tests are red".to_owned(),
            failure_info: Some(FailureInfo::ApplicationFailureInfo(ApplicationFailureInfo {
                r#type: "TestsRed".to_owned(),
                ..ApplicationFailureInfo::default()
            })),
            ..Failure::default()
        };
        let failure = Failure {
            message: "activity error".to_owned(),
            cause: Some(Box::new(cause)),
            ..Failure::default()
        };
        assert_eq!(
            failed(&failure),
            Closed::Failed {
                kind: Some("TestsRed".to_owned()),
                message: "activity error: two tests are red".to_owned(),
            }
        );
    }
}
