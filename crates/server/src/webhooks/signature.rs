//! By what a delivery is known: the HMAC-SHA-256 of its body, made with a secret that only the sender and we have.
//!
//! It is checked over the bytes that arrived, before anything is made of them. SHA-1, which GitHub sends beside it, counts
//! for nothing.

use std::fmt;

use http::HeaderMap;
use ring::hmac;
use thiserror::Error;

use super::Sender;
use crate::refusal::{Refusal, Trouble};

/// The bytes of a signature.
const LENGTH: usize = 32;
/// The fewest bytes of a secret. Whoever has seen one delivery can try to guess it in peace.
pub(crate) const SECRET_MIN_BYTES: usize = 16;

/// What a sender says that the HMAC of its body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Signature([u8; LENGTH]);

impl Signature {
    /// Reads the header in which this sender puts it.
    pub(crate) fn of(sender: Sender, headers: &HeaderMap) -> Result<Self, Refusal> {
        let (name, prefix, form) = match sender {
            Sender::Github => ("X-Hub-Signature-256", "sha256=", "`sha256=` and the HMAC-SHA-256"),
            Sender::Linear => ("Linear-Signature", "", "the HMAC-SHA-256"),
        };
        let wrong = |what: &str| {
            Refusal::new(Trouble::Unauthenticated, format!("{name} {what}"))
                .named(name)
                .remedy(format!(
                    "send {form} of the body in 64 hexadecimal digits, made with a secret that {} and a source know",
                    sender.name()
                ))
        };
        let given = headers.get(name).ok_or_else(|| wrong("is missing"))?;
        let digits = given.as_bytes().trim_ascii().strip_prefix(prefix.as_bytes());
        digits
            .and_then(hexadecimal)
            .map(Self)
            .ok_or_else(|| wrong("is no signature"))
    }
}

fn hexadecimal(digits: &[u8]) -> Option<[u8; LENGTH]> {
    if digits.len() != 2 * LENGTH {
        return None;
    }
    let mut bytes = [0; LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let mut value = 0;
        for digit in pair {
            value = value * 16 + char::from(*digit).to_digit(16)?;
        }
        *byte = u8::try_from(value).ok()?;
    }
    Some(bytes)
}

/// A secret that anybody could guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it has {0} bytes, and at least {SECRET_MIN_BYTES} are needed: `openssl rand -hex 32` makes one")]
pub(crate) struct WeakSecret(usize);

/// A secret that deliveries are signed with.
#[derive(Clone)]
pub(crate) struct SigningKey(hmac::Key);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// White space around the secret is not part of it: whoever writes a file ends it with a line break.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, WeakSecret> {
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_MIN_BYTES {
            return Err(WeakSecret(secret.len()));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// Whether this secret made the signature of these bytes. How long that takes tells nothing of the secret.
    pub(crate) fn made(&self, signature: &Signature, body: &[u8]) -> bool {
        hmac::verify(&self.0, body, &signature.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The example that GitHub publishes for whoever writes a check like this one.
    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const DIGITS: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a header");
        HeaderMap::from_iter([(name.parse().expect("a name"), value)])
    }

    fn github(value: &str) -> Result<Signature, Refusal> {
        Signature::of(Sender::Github, &headers("X-Hub-Signature-256", value))
    }

    #[test]
    fn the_published_example_holds_for_both_senders() {
        let key = SigningKey::new(SECRET).expect("long enough");
        let signature = github(&format!("sha256={DIGITS}")).expect("a signature");
        assert!(key.made(&signature, BODY));
        let upper = Signature::of(
            Sender::Linear,
            &headers("Linear-Signature", &DIGITS.to_uppercase()),
        );
        assert_eq!(upper, Ok(signature));
    }

    #[test]
    fn another_body_secret_or_signature_is_refused() {
        let key = SigningKey::new(SECRET).expect("long enough");
        let signature = github(&format!("sha256={DIGITS}")).expect("a signature");
        assert!(!key.made(&signature, b"Hello, World"));
        assert!(!key.made(&signature, b"Hello, World! "));
        let other = SigningKey::new(b"It's a Secret to Everybody!").expect("long enough");
        assert!(!other.made(&signature, BODY));
        let flipped = github(&format!("sha256={}", DIGITS.replacen('7', "6", 1))).expect("a signature");
        assert!(!key.made(&flipped, BODY));
    }

    #[test]
    fn what_is_no_signature_is_refused_before_any_secret_is_looked_at() {
        for value in [
            "",
            "sha256=",
            DIGITS,
            "sha1=2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
            &format!("sha256={}", &DIGITS[1..]),
            &format!("sha256={DIGITS}0"),
            &format!("sha256={}g", &DIGITS[1..]),
            &format!("sha256=+{}", &DIGITS[1..]),
        ] {
            let refusal = github(value).expect_err(value);
            assert_eq!(refusal.trouble, Trouble::Unauthenticated, "{value}");
        }
        let none = Signature::of(Sender::Linear, &HeaderMap::new()).expect_err("there is none");
        assert!(none.to_string().contains("Linear-Signature is missing"), "{none}");
    }

    #[test]
    fn a_secret_that_can_be_guessed_is_none() {
        assert!(SigningKey::new(b"").is_err());
        assert!(SigningKey::new(b"      \n            ").is_err());
        assert!(SigningKey::new(b"0123456789abcde\n").is_err());
        let key = SigningKey::new(b"\nIt's a Secret to Everybody\n").expect("long enough");
        let signature = github(&format!("sha256={DIGITS}")).expect("a signature");
        assert!(key.made(&signature, BODY));
    }
}
