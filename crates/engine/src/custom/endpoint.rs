//! Where a run's work is sent: an address as people write it, and which of them an operator allows.

use std::{fmt, str::FromStr};

use http::Uri;
use serde::Serialize;
use thiserror::Error;

/// The most characters of an address: what every server and proxy takes.
const LENGTH_MAX: usize = 2048;

/// Why a text is no address of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoEndpoint {
    #[error("this is no URL")]
    NoUrl,
    #[error("the URL is longer than {LENGTH_MAX} characters")]
    TooLong,
    #[error("the URL does not begin with https:// or http://")]
    Scheme,
    #[error("the URL names no host")]
    NoHost,
    #[error("the URL holds a user or a password, which do not belong into a spec")]
    Credentials,
    #[error("the URL has a fragment, which is never sent")]
    Fragment,
    #[error("the path of the URL has `.` or `..` in it")]
    Dots,
}

/// An HTTP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    text: String,
    tls: bool,
    host: String,
    port: u16,
    target: String,
}

impl Endpoint {
    /// The whole address, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn uses_tls(&self) -> bool {
        self.tls
    }

    /// A name, or an address without brackets, in small letters.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, as they are sent.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Host and port, as the header `Host` has them.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == default_port(self.tls) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        if text.len() > LENGTH_MAX {
            return Err(NoEndpoint::TooLong);
        }
        // The parser drops it silently.
        if text.contains('#') {
            return Err(NoEndpoint::Fragment);
        }
        let uri: Uri = text.parse().map_err(|_| NoEndpoint::NoUrl)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(NoEndpoint::Scheme),
        };
        let authority = uri.authority().ok_or(NoEndpoint::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(NoEndpoint::Credentials);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(NoEndpoint::NoHost);
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // A colon without a number, or with one that is too large.
            None if authority.as_str().len() > authority.host().len() => return Err(NoEndpoint::NoUrl),
            None => default_port(tls),
        };
        let has_dots = |segment: &str| {
            let plain = segment.to_ascii_lowercase().replace("%2e", ".");
            plain == "." || plain == ".."
        };
        if uri.path().split('/').any(has_dots) {
            return Err(NoEndpoint::Dots);
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(Self {
            text: text.to_owned(),
            tls,
            host: host.to_ascii_lowercase(),
            port,
            target: target.to_owned(),
        })
    }
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Which endpoints are allowed: `https://*`, `https://*.example.com/agents`, `http://127.0.0.1:9000`.
///
/// Scheme, host, port and path are compared one by one, so that nothing in a path can pass for a host. Without a port every
/// one is allowed, and a path allows what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPattern {
    tls: bool,
    host: HostPattern,
    port: Option<u16>,
    /// Without a slash at its end; empty allows every path.
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    /// Every name below this one, which begins with its dot.
    Below(String),
    This(String),
}

impl EndpointPattern {
    /// Every endpoint with a certificate.
    pub const fn any_with_tls() -> Self {
        Self {
            tls: true,
            host: HostPattern::Any,
            port: None,
            path: String::new(),
        }
    }

    pub fn allows(&self, endpoint: &Endpoint) -> bool {
        let host = match &self.host {
            HostPattern::Any => true,
            HostPattern::Below(suffix) => endpoint.host.ends_with(suffix.as_str()),
            HostPattern::This(host) => endpoint.host == *host,
        };
        let path = endpoint
            .path()
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.tls == endpoint.tls && host && self.port.is_none_or(|port| port == endpoint.port) && path
    }
}

impl FromStr for EndpointPattern {
    type Err = NoEndpoint;

    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        let (scheme, rest) = text.split_once("://").ok_or(NoEndpoint::Scheme)?;
        let rest = rest.strip_suffix("/*").unwrap_or(rest);
        // A star is no part of a name, so that a name stands in for it.
        let (starred, plain) = match rest.strip_prefix("*.") {
            Some(below) => (true, below.to_owned()),
            None if rest == "*" || rest.starts_with("*/") || rest.starts_with("*:") => {
                (true, rest.replacen('*', "any", 1))
            }
            None => (false, rest.to_owned()),
        };
        if plain.contains(['*', '?']) {
            return Err(NoEndpoint::NoUrl);
        }
        let endpoint: Endpoint = format!("{scheme}://{plain}").parse()?;
        let authority = plain.split('/').next().unwrap_or_default();
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        let host = match (starred, rest.starts_with("*.")) {
            (true, true) => HostPattern::Below(format!(".{}", endpoint.host)),
            (true, false) => HostPattern::Any,
            (false, _) => HostPattern::This(endpoint.host.clone()),
        };
        Ok(Self {
            tls: endpoint.tls,
            host,
            port: has_port.then_some(endpoint.port),
            path: endpoint.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let endpoint: Endpoint = "https://Agents.Example.com/run?team=a".parse().unwrap();

        assert!(endpoint.uses_tls());
        assert_eq!(endpoint.host(), "agents.example.com");
        assert_eq!(endpoint.port(), 443);
        assert_eq!(endpoint.target(), "/run?team=a");
        assert_eq!(endpoint.authority(), "agents.example.com");
        let local: Endpoint = "http://[::1]:9000".parse().unwrap();
        assert_eq!((local.host(), local.port(), local.target()), ("::1", 9000, "/"));
        assert_eq!(local.authority(), "[::1]:9000");
    }

    #[test]
    fn what_is_no_address_of_an_endpoint_is_told() {
        let long = format!("https://a/{}", "x".repeat(2048));
        for (text, expected) in [
            ("", NoEndpoint::NoUrl),
            ("agents.example.com", NoEndpoint::Scheme),
            ("/run", NoEndpoint::Scheme),
            ("ftp://a/b", NoEndpoint::Scheme),
            ("file:///etc/passwd", NoEndpoint::NoUrl),
            ("https://", NoEndpoint::NoUrl),
            ("https://me:secret@a/b", NoEndpoint::Credentials),
            ("https://a@b", NoEndpoint::Credentials),
            ("https://a/b#c", NoEndpoint::Fragment),
            ("https://a/x/../y", NoEndpoint::Dots),
            ("https://a/x/%2E%2e/y", NoEndpoint::Dots),
            ("https://a b/", NoEndpoint::NoUrl),
            ("https://a:99999/", NoEndpoint::NoUrl),
            ("https://a:/", NoEndpoint::NoUrl),
            (&long, NoEndpoint::TooLong),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_pattern_allows_what_it_names_and_nothing_that_looks_like_it() {
        for (pattern, allowed, refused) in [
            (
                "https://*",
                &["https://a.example", "https://a.example:8443/x"][..],
                &["http://a.example"][..],
            ),
            (
                "https://agents.example.com",
                &["https://agents.example.com/x", "https://AGENTS.example.com:8443"],
                &[
                    "https://agents.example.com.evil.example",
                    "https://evil.example/agents.example.com",
                ],
            ),
            (
                "https://*.example.com/agents/*",
                &[
                    "https://a.example.com/agents",
                    "https://a.b.example.com/agents/run?x=1",
                ],
                &[
                    "https://example.com/agents",
                    "https://evilexample.com/agents",
                    "https://a.example.com/agents-of-others",
                    "https://a.example.com/",
                    "https://evil.example/x.example.com/agents",
                ],
            ),
            (
                "http://127.0.0.1:9000",
                &["http://127.0.0.1:9000/run"],
                &["http://127.0.0.1:9001/run", "https://127.0.0.1:9000/run"],
            ),
            (
                "http://[::1]",
                &["http://[::1]:80/", "http://[::1]:9000/"],
                &["http://[::2]/"],
            ),
            (
                "https://*:8443",
                &["https://a.example:8443"],
                &["https://a.example"],
            ),
        ] {
            let parsed: EndpointPattern = pattern.parse().unwrap();
            for endpoint in allowed {
                assert!(
                    parsed.allows(&endpoint.parse().unwrap()),
                    "{pattern} and {endpoint}"
                );
            }
            for endpoint in refused {
                assert!(
                    !parsed.allows(&endpoint.parse().unwrap()),
                    "{pattern} and {endpoint}"
                );
            }
        }
    }

    #[test]
    fn only_patterns_are_read() {
        for text in [
            "*",
            "example.com",
            "https://a*b",
            "https://*a",
            "https://a/*/b",
            "ftp://*",
            "https://a/?x",
        ] {
            assert!(text.parse::<EndpointPattern>().is_err(), "{text}");
        }
        assert_eq!("https://*".parse(), Ok(EndpointPattern::any_with_tls()));
    }
}
