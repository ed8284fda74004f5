//! A watch on its way to a process: late, silent for a while, with gaps, or cut off.

use std::{collections::BTreeMap, sync::Arc};

use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures::{
    FutureExt, StreamExt,
    stream::{self, Fuse},
};
use serde_json::Value;
use tokio::time::sleep_until;

use super::wire::{Process, Wire};

/// How a watch ends whose place in the history is gone: inside of the stream, where clients look for it.
const EXPIRED: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

struct Watch {
    wire: Arc<Wire>,
    process: Arc<Process>,
    plural: String,
    /// It may be asked once more after its end.
    events: Fuse<BodyDataStream>,
    /// How often watches had been told that their place is gone when this one began.
    expiries: u32,
    over: bool,
}

/// Puts what may happen to a watch between its stream and the process.
pub(super) fn watched(wire: Arc<Wire>, process: Arc<Process>, plural: String, body: Body) -> Body {
    let watch = Watch {
        expiries: process.expiries(),
        wire,
        process,
        plural,
        events: body.into_data_stream().fuse(),
        over: false,
    };
    let stream = stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        Some((chunk, watch))
    });
    Body::from_stream(stream)
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        if self.over {
            return None;
        }
        let chunk = tokio::select! {
            biased;
            () = self.process.expires_after(self.expiries) => {
                self.over = true;
                self.process.passes().await;
                return Some(Ok(Bytes::from_static(EXPIRED.as_bytes())));
            }
            chunk = self.events.next() => chunk?,
        };
        let chunk = match chunk {
            Ok(chunk) => self.delay(chunk).await,
            error => error,
        };
        self.process.passes().await;
        Some(chunk)
    }

    async fn delay(&mut self, chunk: Bytes) -> Result<Bytes, axum::Error> {
        self.wire.travel().await;
        tokio::time::sleep(self.process.lag_of(&self.plural)).await;
        let Some((until, skips)) = self.process.silent_until(&self.plural) else {
            return Ok(chunk);
        };
        sleep_until(until).await;
        if !skips {
            return Ok(chunk);
        }
        let mut all = BytesMut::from(chunk);
        while let Some(more) = self.events.next().now_or_never() {
            let Some(more) = more else {
                // It ended meanwhile, and must not be asked again.
                self.over = true;
                break;
            };
            all.extend_from_slice(&more?);
        }
        Ok(last_states(&all))
    }
}

/// Of several events of one object only the last, and of several bookmarks the last.
fn last_states(lines: &[u8]) -> Bytes {
    let lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    let last: BTreeMap<String, usize> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| (subject(line), index))
        .collect();
    let mut kept: Vec<usize> = last.into_values().collect();
    kept.sort_unstable();
    kept.iter()
        .filter_map(|index| lines.get(*index))
        .flat_map(|line| line.iter().copied())
        .collect()
}

fn subject(line: &[u8]) -> String {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED" | "DELETED") => {
            let metadata = &event["object"]["metadata"];
            format!("{}/{}", metadata["namespace"], metadata["name"])
        }
        other => other.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_state_of_each_object_is_left() {
        let event = |kind: &str, name: &str, version: u32| {
            format!(
                "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"{name}\",\"v\":{version}}}}}}}\n"
            )
        };
        let lines = [
            event("ADDED", "a", 1),
            event("ADDED", "b", 2),
            event("MODIFIED", "a", 3),
            event("DELETED", "b", 4),
            event("BOOKMARK", "", 5),
        ];
        let expected: String = lines[2..].concat();
        assert_eq!(last_states(lines.concat().as_bytes()), expected);
    }
}
