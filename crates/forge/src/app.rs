//! Tokens of a GitHub App: made for one repository, short-lived, and revoked when they are not needed any more.
//!
//! The App shows who it is with a JWT that it signs with its own key; for that GitHub gives a token of one installation.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Method;
use jiff::{Timestamp, ToSpan};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

use crate::{
    error::ForgeError,
    http::{Http, Patience},
    read::{Answer, part},
    token::Token,
};

/// How far our clock may be ahead of GitHub's, in seconds.
const CLOCK_SKEW: i64 = 30;
/// How long a JWT is good for, in seconds. GitHub takes at most ten minutes.
const JWT_SECONDS: i64 = 540;

/// A GitHub App and its key.
pub struct App {
    id: String,
    key: RsaKeyPair,
    api: String,
    patience: Patience,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A token of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationToken {
    pub token: Token,
    pub expires_at: Timestamp,
}

impl App {
    /// The App of this id, with its private key as GitHub gave it: a PEM file.
    pub fn new(id: &str, pem: &[u8], api_base_url: &str, patience: Patience) -> Result<Self, ForgeError> {
        let unusable = |problem: String| ForgeError::Key { problem };
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| unusable(error.to_string()))?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(unusable("it is no RSA key".to_owned())),
        };
        Ok(Self {
            id: id.to_owned(),
            key: key.map_err(|error| unusable(error.to_string()))?,
            api: api_base_url.to_owned(),
            patience,
        })
    }

    /// Makes a token of an installation for one repository, with the rights that delivering work takes.
    ///
    /// An installation knows its repositories by their names alone, so that one of another owner has the same name as one of
    /// its own. A token for anything else than the repository of this owner and name is taken back at once.
    pub async fn mint(
        &self,
        installation: &str,
        repository: &str,
        writes: bool,
        now: Timestamp,
    ) -> Result<InstallationToken, ForgeError> {
        let name = repository.rsplit('/').next().unwrap_or(repository);
        let access = if writes { "write" } else { "read" };
        let body = json!({
            "repositories": [name],
            "permissions": {"contents": access, "pull_requests": access},
        });
        let http = Http::new(&self.api, "Bearer", self.jwt(now)?, self.patience.clone())?;
        let path = format!("/app/installations/{}/access_tokens", part(installation));
        let answer = http.send(&Method::POST, &path, Some(&body)).await?;
        let answer = Answer::new("POST", &path, answer);
        let expires_at = answer.text("/expires_at")?;
        let expires_at = expires_at.parse().map_err(|_| ForgeError::Unexpected {
            method: "POST".to_owned(),
            path: path.clone(),
            problem: format!("/expires_at is {expires_at:?}, which is no time"),
        })?;
        let token = Token::new(answer.text("/token")?);
        if let Err(error) = only_for(repository, installation, &answer) {
            // Whether or not that succeeds, nobody gets it; it ends by itself within the hour.
            let _ = Self::revoke(&self.api, token, self.patience.clone()).await;
            return Err(error);
        }
        Ok(InstallationToken { token, expires_at })
    }

    /// Takes a token back. One that is not good any more is taken back already.
    pub async fn revoke(api_base_url: &str, token: Token, patience: Patience) -> Result<(), ForgeError> {
        let http = Http::new(api_base_url, "Bearer", token, patience)?;
        match http.send(&Method::DELETE, "/installation/token", None).await {
            Ok(_) | Err(ForgeError::Unauthorised { .. } | ForgeError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Who the App is, signed.
    fn jwt(&self, now: Timestamp) -> Result<Token, ForgeError> {
        let unusable = |problem: &str| ForgeError::Key {
            problem: problem.to_owned(),
        };
        let at = |seconds: i64| now.checked_add(seconds.seconds()).unwrap_or(now).as_second();
        let claims = json!({"iat": at(-CLOCK_SKEW), "exp": at(JWT_SECONDS), "iss": self.id});
        let encoded = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            encoded(&json!({"alg": "RS256", "typ": "JWT"})),
            encoded(&claims)
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| unusable("it could not sign"))?;
        Ok(Token::new(format!(
            "{signed}.{}",
            URL_SAFE_NO_PAD.encode(signature)
        )))
    }
}

/// Whether a token is for this repository and no other. Forges take upper and lower case for the same.
fn only_for(repository: &str, installation: &str, answer: &Answer<'_>) -> Result<(), ForgeError> {
    let names: Vec<&str> = answer
        .list("/repositories")?
        .iter()
        .map(|one| one.get("full_name").and_then(Value::as_str).unwrap_or("no name"))
        .collect();
    match names.as_slice() {
        [one] if one.eq_ignore_ascii_case(repository) => Ok(()),
        others => Err(ForgeError::OtherRepository {
            installation: installation.to_owned(),
            asked: repository.to_owned(),
            given: others.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    const KEY: &[u8] = include_bytes!("../tests/api/app-key.pem");

    #[test]
    fn the_app_signs_who_it_is_for_less_than_ten_minutes() {
        let app = App::new("17", KEY, "https://api.example.com", Patience::none()).unwrap();
        let now = Timestamp::from_second(10_000).unwrap();

        let jwt = app.jwt(now).unwrap();

        let parts: Vec<&str> = jwt.reveal().split('.').collect();
        let decoded =
            |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        assert_eq!(decoded(parts[0]), json!({"alg": "RS256", "typ": "JWT"}));
        assert_eq!(
            decoded(parts[1]),
            json!({"iat": 9_970, "exp": 10_540, "iss": "17"})
        );
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, app.key.public());
        let signed = format!("{}.{}", parts[0], parts[1]);
        public
            .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(parts[2]).unwrap())
            .unwrap();
    }

    #[test]
    fn a_key_that_is_none_is_told_without_repeating_it() {
        for pem in [
            &b"not a key"[..],
            b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
        ] {
            let error = App::new("17", pem, "https://api.example.com", Patience::none()).unwrap_err();
            assert!(matches!(error, ForgeError::Key { .. }), "{error}");
            assert!(!error.to_string().contains("AAAA"), "{error}");
        }
        assert!(!format!("{:?}", Token::new("hidden")).contains("hidden"));
    }
}
