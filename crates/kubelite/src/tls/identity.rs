//! A certificate authority and a server certificate, made once and kept in a directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::{Span, Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::private_file::{self, PRIVATE, PUBLIC};

/// A server certificate that ends sooner is replaced at the next start.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);
const SERVER_YEARS: i64 = 10;
/// Clients hold on to the authority, so it outlives the certificates it signs, a renewed one included.
const AUTHORITY_YEARS: i64 = 30;
/// Clocks of clients may be behind.
const BACKDATED_DAYS: i64 = 1;

/// Every certificate is good for these.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{0:?} is neither a host name nor an address")]
    Name(String),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("the certificate cannot be used: {0}")]
    Use(#[from] rustls::Error),
    #[error("the time {0} is out of range for a certificate")]
    Time(Timestamp),
}

/// What the server shows to its clients.
#[derive(Clone)]
pub struct Identity {
    authority: Pair,
    server: Pair,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the keys.
        f.debug_struct("Identity")
            .field("authority", &self.authority.certificate)
            .finish_non_exhaustive()
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Pair {
    certificate: String,
    key: String,
}

impl Identity {
    /// The identity kept in a directory, or a new one if there is none, it ends soon, or it lacks one of the names (host
    /// names or addresses, beside the local ones). The authority stays as long as it can, so that clients which know it
    /// go on trusting the server.
    pub fn load_or_create(directory: &Path, names: &[String], now: Timestamp) -> Result<Self, TlsError> {
        let names: Vec<String> = LOCAL_NAMES
            .iter()
            .map(ToString::to_string)
            .chain(names.iter().cloned())
            .collect();
        if let Some(wrong) = names
            .iter()
            .find(|name| ServerName::try_from(name.as_str()).is_err())
        {
            return Err(TlsError::Name(wrong.clone()));
        }
        let kept = Pair::read(directory, "ca")?;
        if let Some(authority) = kept {
            if let Some(server) = Pair::read(directory, "server")? {
                let identity = Self {
                    authority: authority.clone(),
                    server,
                };
                if identity.serves(&names, now) {
                    return Ok(identity);
                }
            }
            if let Ok(server) = server_pair(&authority, &names, now) {
                let identity = Self { authority, server };
                if identity.serves(&names, now) {
                    identity.server.write(directory, "server")?;
                    return Ok(identity);
                }
            }
        }
        let authority = authority_pair(now)?;
        let server = server_pair(&authority, &names, now)?;
        authority.write(directory, "ca")?;
        server.write(directory, "server")?;
        Ok(Self { authority, server })
    }

    /// The certificate of the authority, for kubeconfig files.
    pub fn ca_pem(&self) -> &str {
        &self.authority.certificate
    }

    /// The configuration of a server with this identity, for HTTP/2 and HTTP/1.1.
    pub fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let (certificate, key) = self.server.parse().ok_or_else(|| {
            rustls::Error::General("the server's certificate or key is not in PEM".to_owned())
        })?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Whether a client that trusts the authority accepts the server under all these names, for a while yet.
    fn serves(&self, names: &[String], now: Timestamp) -> bool {
        let Some((authority, _)) = self.authority.parse() else {
            return false;
        };
        let Some((certificate, _)) = self.server.parse() else {
            return false;
        };
        let mut roots = RootCertStore::empty();
        if roots.add(authority).is_err() || self.server_config().is_err() {
            return false;
        }
        let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()
        else {
            return false;
        };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let later = UnixTime::since_unix_epoch(Duration::from_secs(seconds) + RENEW_BEFORE);
        names.iter().all(|name| {
            ServerName::try_from(name.as_str()).is_ok_and(|name| {
                verifier
                    .verify_server_cert(&certificate, &[], &name, &[], later)
                    .is_ok()
            })
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Pair {
    /// `None` if either file is missing.
    fn read(directory: &Path, name: &str) -> Result<Option<Self>, TlsError> {
        let read = |path: PathBuf| match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TlsError::Read { path, source }),
        };
        let certificate = read(directory.join(format!("{name}.crt")))?;
        let key = read(directory.join(format!("{name}.key")))?;
        Ok(certificate
            .zip(key)
            .map(|(certificate, key)| Self { certificate, key }))
    }

    fn write(&self, directory: &Path, name: &str) -> Result<(), TlsError> {
        for (suffix, content, mode) in [("key", &self.key, PRIVATE), ("crt", &self.certificate, PUBLIC)] {
            let path = directory.join(format!("{name}.{suffix}"));
            private_file::write(&path, content.as_bytes(), mode)
                .map_err(|source| TlsError::Write { path, source })?;
        }
        Ok(())
    }

    fn parse(&self) -> Option<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).ok()?;
        Some((certificate, key))
    }
}

fn authority_params(now: Timestamp) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    valid_for(&mut params, now, AUTHORITY_YEARS)?;
    params.distinguished_name = named("kubelite certificate authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn authority_pair(now: Timestamp) -> Result<Pair, TlsError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(now)?.self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// A server certificate signed by an authority. Signing needs the authority's key and name, and the name is always the
/// same, so its certificate need not be taken apart.
fn server_pair(authority: &Pair, names: &[String], now: Timestamp) -> Result<Pair, TlsError> {
    let issuer = Issuer::new(authority_params(now)?, KeyPair::from_pem(&authority.key)?);
    let mut params = CertificateParams::new(names)?;
    valid_for(&mut params, now, SERVER_YEARS)?;
    params.distinguished_name = named("kubelite");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn valid_for(params: &mut CertificateParams, now: Timestamp, years: i64) -> Result<(), TlsError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let moved = |by: Span| today.checked_add(by).map_err(|_| TlsError::Time(now));
    let (year, month, day) = parts(moved(-BACKDATED_DAYS.days())?, now)?;
    params.not_before = date_time_ymd(year, month, day);
    let (year, month, day) = parts(moved(years.years())?, now)?;
    params.not_after = date_time_ymd(year, month, day);
    Ok(())
}

/// rcgen panics on dates that do not exist; a civil date always does, if its year is one that X.509 knows.
fn parts(date: Date, now: Timestamp) -> Result<(i32, u8, u8), TlsError> {
    match (u8::try_from(date.month()), u8::try_from(date.day())) {
        (Ok(month), Ok(day)) if (1..9999).contains(&date.year()) => Ok((date.year().into(), month, day)),
        _ => Err(TlsError::Time(now)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    fn years_later(years: i64) -> Timestamp {
        (now().to_zoned(TimeZone::UTC) + years.years()).timestamp()
    }

    fn load(directory: &Path, names: &[&str], now: Timestamp) -> Result<Identity, TlsError> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Identity::load_or_create(directory, &names, now)
    }

    #[test]
    fn an_identity_is_made_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path(), &[], now()).unwrap();
        let second = load(directory.path(), &[], now()).unwrap();
        assert_eq!(first.server.certificate, second.server.certificate);
        assert_eq!(first.ca_pem(), second.ca_pem());
        for name in ["ca.key", "server.key"] {
            let mode = fs::metadata(directory.path().join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!format!("{first:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn a_new_name_gets_a_new_certificate_from_the_same_authority() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path(), &[], now()).unwrap();
        let second = load(directory.path(), &["kubelite.internal", "10.1.2.3"], now()).unwrap();
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert_ne!(first.server.certificate, second.server.certificate);
        // The wider certificate serves the narrower wish too.
        let third = load(directory.path(), &["10.1.2.3"], now()).unwrap();
        assert_eq!(second.server.certificate, third.server.certificate);
    }

    #[test]
    fn a_certificate_about_to_end_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path(), &[], now()).unwrap();
        let second = load(directory.path(), &[], years_later(9)).unwrap();
        assert_eq!(first.server.certificate, second.server.certificate);
        let third = load(directory.path(), &[], years_later(10)).unwrap();
        assert_ne!(first.server.certificate, third.server.certificate);
        assert_eq!(first.ca_pem(), third.ca_pem());
    }

    #[test]
    fn damaged_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path(), &[], now()).unwrap();
        let other = tempfile::tempdir().unwrap();
        load(other.path(), &[], now()).unwrap();
        for (name, keeps_authority) in [("server.crt", true), ("server.key", true), ("ca.key", false)] {
            let path = directory.path().join(name);
            first.authority.write(directory.path(), "ca").unwrap();
            fs::write(&path, "nonsense").unwrap();
            let again = load(directory.path(), &["a.example"], now()).unwrap();
            assert_eq!(again.ca_pem() == first.ca_pem(), keeps_authority, "{name}");
            assert!(again.server_config().is_ok(), "{name}");
        }
        // A key that does not belong to the certificate beside it.
        fs::copy(other.path().join("ca.key"), directory.path().join("ca.key")).unwrap();
        let again = load(directory.path(), &["b.example"], now()).unwrap();
        assert!(again.serves(&["b.example".to_owned()], now()));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(
            load(directory.path(), &["not a name"], now()),
            Err(TlsError::Name(_))
        ));
        assert!(matches!(
            load(directory.path(), &[], Timestamp::MAX),
            Err(TlsError::Time(_))
        ));
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(load(&file.join("below"), &[], now()).is_err());
    }
}
