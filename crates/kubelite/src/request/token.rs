//! Continue tokens: where the next page of a list begins, and in which snapshot.

use base64::{
    DecodeError, Engine, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Serialize};

use crate::{body::go_json_message, error::ApiError};

/// As Go decodes it: without padding, and whatever the unused bits at the end are.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// A namespace and a name of the longest permitted lengths come to 0.4 KiB as base64; more is not one of our tokens.
const MAX_TOKEN_BYTES: usize = 2048;

/// The place after which a list goes on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContinueToken {
    /// The version of the snapshot that the first page showed. `None`: the client accepted to go on with whatever is
    /// there now, after its snapshot expired.
    pub version: Option<u64>,
    /// The first key of the next page: the last key of the page before, followed by a zero byte.
    pub start: String,
}

#[derive(Deserialize, Serialize)]
#[serde(default)]
#[derive(Default)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    pub fn after(version: u64, last_key: &str) -> Self {
        Self {
            version: Some(version),
            start: format!("{last_key}\0"),
        }
    }

    pub fn encode(&self) -> String {
        let rv = self
            .version
            .map_or(-1, |version| i64::try_from(version).unwrap_or(i64::MAX));
        let wire = Wire {
            v: TOKEN_VERSION.to_owned(),
            rv,
            start: self.start.clone(),
        };
        // A struct of two strings and a number always has a JSON form.
        BASE64.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    pub fn decode(token: &str) -> Result<Self, ApiError> {
        Self::read(token).map_err(|why| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        })
    }

    fn read(token: &str) -> Result<Self, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(format!("longer than {MAX_TOKEN_BYTES} bytes"));
        }
        let bytes = BASE64.decode(token).map_err(|error| {
            let position = match error {
                DecodeError::InvalidByte(position, _) | DecodeError::InvalidLastSymbol(position, _) => {
                    position
                }
                DecodeError::InvalidLength(length) => length,
                DecodeError::InvalidPadding => token.len(),
            };
            format!("illegal base64 data at input byte {position}")
        })?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| go_json_message(&error, &bytes))?;
        if wire.v != TOKEN_VERSION {
            return Err(format!(
                "server does not recognize this encoded version {}",
                wire.v
            ));
        }
        if wire.rv == 0 {
            return Err("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned());
        }
        if wire.start.is_empty() {
            return Err("encoded start key empty (version meta.k8s.io/v1)".to_owned());
        }
        let start = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        // A key that climbs out of its collection would read what the caller did not ask for.
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(wire.start);
        }
        Ok(Self {
            version: u64::try_from(wire.rv).ok(),
            start: start.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_the_json_that_other_servers_make() {
        let token = ContinueToken::after(7, "ns/a").encode();
        let bytes = BASE64.decode(token).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\"v\":\"meta.k8s.io/v1\",\"rv\":7,\"start\":\"ns/a\\u0000\"}"
        );
    }

    #[test]
    fn bad_tokens_are_refused_with_their_reason() {
        let cases = [
            ("!", None, "illegal base64 data at input byte 0"),
            ("", Some("{"), "unexpected end of JSON input"),
            (
                "",
                Some("{\"v\":\"v2\"}"),
                "server does not recognize this encoded version v2",
            ),
            (
                "",
                Some("{\"v\":\"meta.k8s.io/v1\",\"start\":\"a\"}"),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                "",
                Some("{\"v\":\"meta.k8s.io/v1\",\"rv\":3}"),
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                "",
                Some("{\"v\":\"meta.k8s.io/v1\",\"rv\":3,\"start\":\"../x\"}"),
                "../x",
            ),
            (
                "",
                Some("{\"v\":\"meta.k8s.io/v1\",\"rv\":3,\"start\":\"a//x\"}"),
                "a//x",
            ),
        ];
        for (raw, json, why) in cases {
            let token = json.map_or(raw.to_owned(), |json| BASE64.encode(json));
            let message = ContinueToken::decode(&token).unwrap_err().message;
            assert_eq!(
                message,
                format!("invalid continue token: continue key is not valid: {why}")
            );
        }
    }

    #[test]
    fn a_negative_version_means_whatever_is_there_now() {
        let token = ContinueToken {
            version: None,
            start: "a\0".to_owned(),
        };
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    proptest! {
        #[test]
        fn tokens_survive_the_round_trip(version in 1..i64::MAX as u64, key in "[a-z0-9-]{1,20}(/[a-z0-9-]{1,20})?") {
            let token = ContinueToken::after(version, &key);
            prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn no_token_panics(token in "[A-Za-z0-9_=-]{0,60}|\\PC{0,20}", json in "\\PC{0,40}") {
            let _ = ContinueToken::decode(&token);
            let _ = ContinueToken::decode(&BASE64.encode(json));
        }
    }
}
