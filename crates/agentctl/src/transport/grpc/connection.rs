//! Where the control plane is, and how it is talked to: with TLS or without, and with which token.

use std::{fs, net::IpAddr, time::Duration};

use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    config::{Choices, Chosen, Source},
    error::Error,
};

/// How long a connection may take: a person waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take to begin. The control plane gives up after 30 s, and says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);
/// How often a silent line is asked whether there is still somebody, and how long that may take.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A bundle of certificates is smaller: something else was put at its place.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `HOST:PORT`.
    pub address: String,
    tls: bool,
}

impl Target {
    /// What flags, variables and files come to. A token is not sent in the clear to another machine unless somebody said so.
    pub(super) fn of(choices: &Choices) -> Result<Self, Error> {
        let given = choices.address.value.trim();
        let (scheme, address) = match given.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest.trim_end_matches('/')),
            None => (None, given),
        };
        let wrong = |why: &str| {
            Error::Validation(format!(
                "the address of the control plane is '{given}': {why}; give HOST:PORT with --server or AGENTCTL_SERVER"
            ))
        };
        let secure = match scheme.as_deref() {
            None => None,
            Some("https") => Some(true),
            Some("http") => Some(false),
            Some(_) => return Err(wrong("only http and https are understood before it")),
        };
        let host = host_of(address).ok_or_else(|| wrong("it has no port"))?;
        let said = Some(choices.tls.value).filter(|_| choices.tls.source != Source::Default);
        if let (Some(secure), Some(said)) = (secure, said)
            && secure != said
        {
            return Err(wrong(
                "that contradicts --tls, --no-tls, AGENTCTL_TLS or the configuration",
            ));
        }
        let certified = choices.ca_cert.value.is_some() || choices.client_cert.value.is_some();
        let tls = said.or(secure).unwrap_or(certified);
        if !tls && said.is_none() && !is_loopback(host) {
            return Err(Error::Validation(format!(
                "your token would go to {address} in the clear: give --tls, or --no-tls if that network is trusted"
            )));
        }
        Ok(Self {
            address: address.to_owned(),
            tls,
        })
    }

    /// A line that connects when it is needed, and again when it broke.
    pub(super) fn channel(&self, choices: &Choices) -> Result<Channel, Error> {
        let scheme = if self.tls { "https" } else { "http" };
        let wrong = |error: tonic::transport::Error| {
            Error::Validation(format!(
                "the control plane at {} cannot be addressed: {error}; check --server, AGENTCTL_CA_CERT, AGENTCTL_CLIENT_CERT \
                 and AGENTCTL_CLIENT_KEY",
                self.address
            ))
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))
            .map_err(wrong)?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if self.tls {
            endpoint = endpoint.tls_config(tls(choices)?).map_err(wrong)?;
        }
        Ok(endpoint.connect_lazy())
    }
}

/// The host of `HOST:PORT`; an IPv6 address stands in brackets.
fn host_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    (!host.is_empty()).then_some(host)
}

/// Whether what is sent there stays on this machine.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn tls(choices: &Choices) -> Result<ClientTlsConfig, Error> {
    let mut config = match file("AGENTCTL_CA_CERT", &choices.ca_cert)? {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    let certificate = file("AGENTCTL_CLIENT_CERT", &choices.client_cert)?;
    let key = file("AGENTCTL_CLIENT_KEY", &choices.client_key)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => config = config.identity(Identity::from_pem(certificate, key)),
        (None, None) => {}
        (Some(_), None) => return Err(half("AGENTCTL_CLIENT_CERT", "AGENTCTL_CLIENT_KEY")),
        (None, Some(_)) => return Err(half("AGENTCTL_CLIENT_KEY", "AGENTCTL_CLIENT_CERT")),
    }
    Ok(config)
}

fn half(there: &str, missing: &str) -> Error {
    Error::Validation(format!(
        "{there} is set, and {missing} is not: set both, or neither"
    ))
}

/// A file that a variable names.
fn file(variable: &str, chosen: &Chosen<Option<String>>) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = &chosen.value else {
        return Ok(None);
    };
    let wrong = |why: String| Error::Validation(format!("{variable} is '{path}': {why}"));
    let size = fs::metadata(path)
        .map_err(|error| wrong(format!("it cannot be read: {error}")))?
        .len();
    if size > FILE_BYTES_MAX {
        return Err(wrong(format!(
            "it has {size} bytes, and is no certificate or key in PEM"
        )));
    }
    let bytes = fs::read(path).map_err(|error| wrong(format!("it cannot be read: {error}")))?;
    Ok(Some(bytes))
}

/// The token, as it goes with every request. Nothing shows it.
pub(super) fn token(choices: &Choices) -> Result<MetadataValue<Ascii>, Error> {
    let token = choices.token.value.as_deref().map(str::trim).unwrap_or_default();
    if token.is_empty() {
        return Err(Error::Validation(
            "there is no token for the control plane: give --token or AGENTCTL_TOKEN, or keep one with `agentctl auth login`; \
             `kubectl create token NAME` makes one of a service account"
                .to_owned(),
        ));
    }
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
        Error::Validation(
            "the token for the control plane has characters that no token has: check --token, AGENTCTL_TOKEN or the configuration"
                .to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Global, environment::Environment};

    fn choices(flags: &[&str], variables: [(&str, &str); 1]) -> Choices {
        let global = Global {
            server: Some(flags.first().copied().unwrap_or_default().to_owned()),
            tls: flags.contains(&"--tls"),
            no_tls: flags.contains(&"--no-tls"),
            ..Global::default()
        };
        Choices::of(&global, &Environment::from(variables)).expect("choices")
    }

    fn target(flags: &[&str]) -> Result<(String, bool), String> {
        Target::of(&choices(flags, [("AGENTCTL_TOKEN", "t")]))
            .map(|target| (target.address, target.tls))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_goes_in_the_clear_only_where_that_is_said_or_stays_here() {
        let plain = |address: &str| Ok((address.to_owned(), false));
        let secure = |address: &str| Ok((address.to_owned(), true));
        assert_eq!(target(&["localhost:1"]), plain("localhost:1"));
        assert_eq!(target(&["127.0.0.2:1"]), plain("127.0.0.2:1"));
        assert_eq!(target(&["[::1]:1"]), plain("[::1]:1"));
        assert_eq!(target(&["http://127.0.0.1:1/"]), plain("127.0.0.1:1"));
        assert_eq!(target(&["https://a.example:1"]), secure("a.example:1"));
        assert_eq!(target(&["a.example:1", "--tls"]), secure("a.example:1"));
        assert_eq!(target(&["a.example:1", "--no-tls"]), plain("a.example:1"));
        for address in [
            "a.example:1",
            "http://a.example:1",
            "10.0.0.1:1",
            "localhost.example:1",
        ] {
            let error = target(&[address]).expect_err(address);
            assert!(
                error.contains("in the clear") && error.contains("--tls"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_address_that_makes_no_sense_is_named() {
        for (flags, words) in [
            (&["a.example"][..], "it has no port"),
            (&["a.example:http"], "it has no port"),
            (&[":50051"], "it has no port"),
            (&["ftp://a.example:1"], "only http and https"),
            (&["https://a.example:1", "--no-tls"], "contradicts"),
        ] {
            let error = target(flags).expect_err(words);
            assert!(error.contains(words) && error.contains("--server"), "{error}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_there_is_named_with_its_variable() {
        let missing = choices(&["a.example:1"], [("AGENTCTL_CA_CERT", "/nowhere/ca.pem")]);
        let target = Target::of(&missing).expect("whoever names an authority wants TLS");
        assert!(target.tls);
        let error = target.channel(&missing).expect_err("no file").to_string();
        assert!(error.contains("AGENTCTL_CA_CERT is '/nowhere/ca.pem'"), "{error}");
    }

    #[test]
    fn a_token_is_never_shown() {
        let chosen = choices(&["localhost:1"], [("AGENTCTL_TOKEN", "s3cret")]);
        let token = token(&chosen).expect("a token");
        assert!(!format!("{token:?}").contains("s3cret"));
        let broken = choices(&["localhost:1"], [("AGENTCTL_TOKEN", "s3\u{7}cret")]);
        let error = super::token(&broken).expect_err("no header").to_string();
        assert!(!error.contains("s3"), "{error}");
        let none = choices(&["localhost:1"], [("AGENTCTL_TOKEN", "")]);
        assert!(
            super::token(&none)
                .expect_err("none")
                .to_string()
                .contains("auth login")
        );
    }
}
