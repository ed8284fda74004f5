//! The connection to the server, from the settings and the files that they name.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use jangar_engine::settings::TemporalSettings;
use temporalio_client::{
    ClientTlsOptions, Connection, ConnectionOptions, RetryOptions, TlsOptions, errors::ClientConnectError,
};
use thiserror::Error;
use tokio::sync::Mutex;
use url::Url;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// By which the server's own lists show who asked.
pub(crate) const IDENTITY: &str = "jangar";

/// Why settings cannot be used. The words name the variable.
#[derive(Debug, Error)]
pub enum BadSettings {
    #[error("{variable} is {}, which cannot be read: {source}", path.display())]
    File {
        variable: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{variable} is {}, which is empty: put the value into that file", path.display())]
    Empty { variable: &'static str, path: PathBuf },
    #[error("{given} is set and {missing} is not: a certificate and its key go together")]
    HalfAPair {
        given: &'static str,
        missing: &'static str,
    },
    #[error("TEMPORAL_ADDRESS is {address}, which is no host and port: {words}")]
    Address { address: String, words: String },
}

/// Connects when it is needed, and keeps the connection, which mends itself.
#[derive(Debug)]
pub(crate) struct Connector {
    settings: TemporalSettings,
    address: String,
    connected: Mutex<Option<Connection>>,
}

impl Connector {
    /// Reads what the settings name once, so that what is wrong with it is told at the start.
    pub(crate) fn new(address: &str, settings: &TemporalSettings) -> Result<Self, BadSettings> {
        let connector = Self {
            settings: settings.clone(),
            address: address.to_owned(),
            connected: Mutex::default(),
        };
        connector.options()?;
        Ok(connector)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The connection; the words of the error say why there is none.
    pub(crate) async fn connection(&self) -> Result<Connection, String> {
        // Held while it connects: the others wait for the same answer and do not ask the server as well.
        let mut connected = self.connected.lock().await;
        if let Some(connection) = connected.as_ref() {
            return Ok(connection.clone());
        }
        // The files are read again, because certificates and keys are replaced.
        let options = self.options().map_err(|error| error.to_string())?;
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT * 2, Connection::connect(options));
        let connection = match connecting.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(self.unreachable(&connect_words(&error))),
            Err(_) => return Err(self.unreachable("it does not answer")),
        };
        tracing::info!(address = self.address, "connected to the Temporal server");
        *connected = Some(connection.clone());
        Ok(connection)
    }

    /// Forgets the connection: the key that it shows is not taken any more, and may have been replaced.
    pub(crate) async fn forget(&self) {
        *self.connected.lock().await = None;
    }

    pub(crate) fn unreachable(&self, words: &str) -> String {
        format!(
            "the Temporal server at {} cannot be reached ({words}): see that it runs, and that TEMPORAL_ADDRESS and TEMPORAL_TLS \
             are right",
            self.address
        )
    }

    fn options(&self) -> Result<ConnectionOptions, BadSettings> {
        let settings = &self.settings;
        let scheme = if settings.is_encrypted() { "https" } else { "http" };
        let target: Url =
            format!("{scheme}://{}", self.address)
                .parse()
                .map_err(|error: url::ParseError| BadSettings::Address {
                    address: self.address.clone(),
                    words: error.to_string(),
                })?;
        let api_key = settings.api_key_file.as_deref();
        let api_key = api_key
            .map(|path| text("TEMPORAL_API_KEY_FILE", path))
            .transpose()?;
        let tls = settings.is_encrypted().then(|| self.tls()).transpose()?;
        Ok(ConnectionOptions::new(target)
            .identity(IDENTITY)
            .maybe_tls_options(tls)
            .maybe_api_key(api_key)
            .connect_timeout(CONNECT_TIMEOUT)
            // Who asks decides what is asked again, and when.
            .retry_options(RetryOptions::no_retries())
            // One address is one server; whoever has several puts something before them.
            .dns_load_balancing(None)
            .build())
    }

    fn tls(&self) -> Result<TlsOptions, BadSettings> {
        const CERTIFICATE: &str = "TEMPORAL_TLS_CLIENT_CERT_PATH";
        const KEY: &str = "TEMPORAL_TLS_CLIENT_KEY_PATH";
        let settings = &self.settings;
        let authority = settings.server_ca_file.as_deref();
        let authority = authority
            .map(|path| bytes("TEMPORAL_TLS_SERVER_CA_CERT_PATH", path))
            .transpose()?;
        let pair = (
            settings.client_cert_file.as_deref(),
            settings.client_key_file.as_deref(),
        );
        let own = match pair {
            (None, None) => None,
            (Some(_), None) => {
                return Err(BadSettings::HalfAPair {
                    given: CERTIFICATE,
                    missing: KEY,
                });
            }
            (None, Some(_)) => {
                return Err(BadSettings::HalfAPair {
                    given: KEY,
                    missing: CERTIFICATE,
                });
            }
            (Some(certificate), Some(key)) => Some(
                ClientTlsOptions::builder()
                    .client_cert(bytes(CERTIFICATE, certificate)?)
                    .client_private_key(bytes(KEY, key)?)
                    .build(),
            ),
        };
        Ok(TlsOptions::builder()
            .maybe_server_root_ca_cert(authority)
            .maybe_domain(settings.server_name.clone())
            .maybe_client_tls_options(own)
            .build())
    }
}

fn connect_words(error: &ClientConnectError) -> String {
    match error {
        ClientConnectError::TonicTransportError(error) => innermost(error),
        ClientConnectError::SystemInfoCallError(status) => status.message().to_owned(),
        other => other.to_string(),
    }
}

/// The last cause of an error, which is the one that says something.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn bytes(variable: &'static str, path: &Path) -> Result<Vec<u8>, BadSettings> {
    let found = fs::read(path).map_err(|source| BadSettings::File {
        variable,
        path: path.to_owned(),
        source,
    })?;
    if found.is_empty() {
        return Err(BadSettings::Empty {
            variable,
            path: path.to_owned(),
        });
    }
    Ok(found)
}

fn text(variable: &'static str, path: &Path) -> Result<String, BadSettings> {
    let found = fs::read_to_string(path).map_err(|source| BadSettings::File {
        variable,
        path: path.to_owned(),
        source,
    })?;
    let found = found.trim();
    if found.is_empty() {
        return Err(BadSettings::Empty {
            variable,
            path: path.to_owned(),
        });
    }
    Ok(found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(change: impl FnOnce(&mut TemporalSettings)) -> String {
        let mut settings = TemporalSettings::default();
        change(&mut settings);
        Connector::new("127.0.0.1:1", &settings).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_by_its_variable() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let empty = directory.path().join("empty");
        fs::write(&empty, "\n").unwrap();
        let error = wrong(|settings| settings.api_key_file = Some(missing.clone()));
        assert!(
            error.contains("TEMPORAL_API_KEY_FILE") && error.contains("missing"),
            "{error}"
        );
        let error = wrong(|settings| settings.api_key_file = Some(empty.clone()));
        assert!(error.contains("is empty"), "{error}");
        let error = wrong(|settings| settings.server_ca_file = Some(missing.clone()));
        assert!(error.contains("TEMPORAL_TLS_SERVER_CA_CERT_PATH"), "{error}");
        let error = wrong(|settings| settings.client_cert_file = Some(missing.clone()));
        assert!(error.contains("TEMPORAL_TLS_CLIENT_KEY_PATH is not"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_by_its_address() {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = closed.local_addr().unwrap().to_string();
        drop(closed);
        let connector = Connector::new(&address, &TemporalSettings::default()).unwrap();
        let error = connector.connection().await.err().unwrap();
        assert!(
            error.contains(&address) && error.contains("TEMPORAL_ADDRESS"),
            "{error}"
        );
        assert!(error.contains("refused"), "{error}");
    }
}
