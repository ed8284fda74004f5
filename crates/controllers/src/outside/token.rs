//! By what an endpoint is known when it reports: a token that it was given with the work, good for one attempt of one run.
//!
//! `v1.UID.ATTEMPT.EXPIRY.MAC`: nothing in it is secret but the last part, which is an HMAC-SHA-256 over the rest and over the
//! name of the run. Nothing is kept of it, so that every process that has the key can check it.

use std::{fmt, str::FromStr};

use jangar_engine::decision::{Key, Uid};
use jiff::Timestamp;
use ring::hmac;
use thiserror::Error;

/// The fewest bytes of a key: as many as the hash has.
pub const KEY_MIN_BYTES: usize = 32;
/// The most bytes of a token. Ours are far shorter.
const TOKEN_MAX_BYTES: usize = 512;
const VERSION: &str = "v1";

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the key has {0} bytes, and at least {KEY_MIN_BYTES} are needed: head -c 32 /dev/urandom makes one")]
pub struct ShortKey(usize);

/// Whom a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub run: Key,
    pub uid: Uid,
    pub attempt: u32,
}

/// Why a token is not accepted. That it is too old is told only to who really had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadToken {
    #[error("this token is none of this run")]
    Foreign,
    #[error("this token has expired")]
    Expired,
}

/// Makes and checks tokens.
#[derive(Clone)]
pub struct Signer(hmac::Key);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    pub fn new(key: &[u8]) -> Result<Self, ShortKey> {
        if key.len() < KEY_MIN_BYTES {
            return Err(ShortKey(key.len()));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, key)))
    }

    pub fn sign(&self, subject: &Subject, expires_at: Timestamp) -> String {
        let claims = claims(&subject.uid.0, subject.attempt, expires_at.as_second());
        let mac = hmac::sign(&self.0, &signed(&subject.run, &claims));
        format!("{claims}.{}", hex(mac.as_ref()))
    }

    /// Whom a token is for that came with a request about this run. The comparison takes the same time however much of it is
    /// right.
    pub fn check(&self, token: &str, run: &Key, now: Timestamp) -> Result<Subject, BadToken> {
        let foreign = BadToken::Foreign;
        if token.len() > TOKEN_MAX_BYTES {
            return Err(foreign);
        }
        let (claims, mac) = token.rsplit_once('.').ok_or(foreign)?;
        let mac = unhex(mac).ok_or(foreign)?;
        hmac::verify(&self.0, &signed(run, claims), &mac).map_err(|_| foreign)?;
        // From here on it is one of ours.
        let mut parts = claims.rsplitn(3, '.');
        let expires_at: i64 = number(parts.next()).ok_or(foreign)?;
        let attempt = number(parts.next()).ok_or(foreign)?;
        let uid = parts
            .next()
            .and_then(|rest| rest.strip_prefix(VERSION)?.strip_prefix('.'))
            .ok_or(foreign)?;
        if now.as_second() >= expires_at {
            return Err(BadToken::Expired);
        }
        Ok(Subject {
            run: run.clone(),
            uid: Uid(uid.to_owned()),
            attempt,
        })
    }
}

fn claims(uid: &str, attempt: u32, expiry: i64) -> String {
    format!("{VERSION}.{uid}.{attempt}.{expiry}")
}

/// What is signed: also for what, so that no signature made for something else passes for one.
fn signed(run: &Key, claims: &str) -> Vec<u8> {
    format!("jangar callback\n{run}\n{claims}").into_bytes()
}

fn number<T: FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |number: u8| char::from_digit(u32::from(number), 16).unwrap_or_default();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(digit).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|start| u8::from_str_radix(text.get(start..start + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_owned(),
        }
    }

    fn subject() -> Subject {
        Subject {
            run: key("mend"),
            uid: Uid("6b4a1f0e-1a2b-4c3d-8e9f-0123456789ab".to_owned()),
            attempt: 2,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn signer(byte: u8) -> Signer {
        Signer::new(&[byte; 32]).unwrap()
    }

    #[test]
    fn a_token_says_whom_it_is_for_until_it_expires() {
        let token = signer(1).sign(&subject(), at(100));

        assert_eq!(signer(1).check(&token, &key("mend"), at(99)), Ok(subject()));
        assert_eq!(
            signer(1).check(&token, &key("mend"), at(100)),
            Err(BadToken::Expired)
        );
    }

    #[test]
    fn a_token_of_another_run_or_key_or_a_changed_one_is_foreign_even_if_it_is_too_old() {
        let token = signer(1).sign(&subject(), at(100));
        let longer = token.replace(".2.100.", ".2.200.");
        let attempt = token.replace(".2.100.", ".3.100.");
        let long = format!("{token}{}", "0".repeat(1024));
        for (run, token) in [
            ("other", token.as_str()),
            ("mend", &longer),
            ("mend", &attempt),
            ("mend", &long),
            ("mend", &token[..token.len() - 2]),
            ("mend", ""),
            ("mend", "."),
            ("mend", "v1.x.1.1.zz"),
            ("mend", "v1.x.1.1.ä"),
        ] {
            for now in [0, 1000] {
                let found = signer(1).check(token, &key(run), at(now));
                assert_eq!(found, Err(BadToken::Foreign), "{run} {token}");
            }
        }
        assert_eq!(
            signer(2).check(&token, &key("mend"), at(0)),
            Err(BadToken::Foreign)
        );
    }

    #[test]
    fn a_short_key_is_refused_and_a_signer_does_not_show_its_own() {
        assert_eq!(Signer::new(b"secret").err(), Some(ShortKey(6)));
        assert_eq!(format!("{:?}", signer(1)), "Signer");
    }
}
