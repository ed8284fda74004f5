//! The certificate that callers are shown: from two files, and from them again when they change.
//!
//! A new pair is used for connections that begin after it was read; those that are there go on. A pair that cannot be used
//! changes nothing but what is told about it: in the log, in the metrics and in the status.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use jangar_engine::settings::TlsFiles;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use crate::metrics::{CertificateLoad, Metrics};

/// How often the files are looked at. Whoever renews certificates does so days before they end.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A chain of certificates has a few kilobytes. What has more is some other file.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Why a certificate cannot be used. What is in the files is never repeated: one of them is a secret.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} has more than 1 MiB, so it is no file of this kind", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} holds no certificate in PEM", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} holds no private key in PEM", path.display())]
    NoKey { path: PathBuf },
    #[error("{} and {} cannot be used together: {error}", certificate.display(), key.display())]
    Unusable {
        certificate: PathBuf,
        key: PathBuf,
        error: rustls::Error,
    },
    #[error("no configuration of TLS can be made: {0}")]
    Configuration(#[source] rustls::Error),
}

/// The content of both files.
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
    async fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: content(&files.certificate).await?,
            key: content(&files.key).await?,
        })
    }

    fn certified(&self, files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain
            .ok()
            .filter(|chain| !chain.is_empty())
            .ok_or_else(|| TlsError::NoCertificate {
                path: files.certificate.clone(),
            })?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| TlsError::NoKey {
            path: files.key.clone(),
        })?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|error| TlsError::Unusable {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            error,
        })
    }
}

async fn content(path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| TlsError::Unreadable {
        path: path.clone(),
        error,
    };
    let size = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
    if size > FILE_MAX_BYTES {
        return Err(TlsError::TooLarge { path: path.clone() });
    }
    tokio::fs::read(path).await.map_err(unreadable)
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// Tells one state of the files from another.
type Print = [u8; 32];

fn print(read: &Result<Pair, TlsError>) -> Print {
    let mut hash = Sha256::new();
    match read {
        Ok(pair) => {
            hash.update(pair.certificate.len().to_be_bytes());
            hash.update(&pair.certificate);
            hash.update(&pair.key);
        }
        Err(error) => hash.update(error.to_string()),
    }
    hash.finalize().into()
}

/// The certificate of now, which all listeners share.
pub struct Certificate {
    files: TlsFiles,
    current: RwLock<Arc<CertifiedKey>>,
    seen: Mutex<Seen>,
    metrics: Arc<Metrics>,
}

/// What was found when the files were looked at last.
struct Seen {
    print: Print,
    /// Why it is not used; absent: it is.
    trouble: Option<String>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_struct("Certificate")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the files for the first time. There is nothing yet to go on with, so that a pair that cannot be used is an error.
    pub async fn load(files: TlsFiles, metrics: Arc<Metrics>) -> Result<Arc<Self>, TlsError> {
        let read = Pair::read(&files).await;
        let print = print(&read);
        let current = read?.certified(&files)?;
        metrics.certificate(CertificateLoad::Loaded);
        Ok(Arc::new(Self {
            files,
            current: RwLock::new(Arc::new(current)),
            seen: Mutex::new(Seen { print, trouble: None }),
            metrics,
        }))
    }

    /// How listeners encrypt, for HTTP/2 and HTTP/1.1.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Configuration)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Self>::clone(self));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Looks at the files now and then, until what is returned is dropped.
    pub fn follow(self: &Arc<Self>, every: Duration) -> Following {
        let certificate = Arc::clone(self);
        Following(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                certificate.look().await;
            }
        }))
    }

    /// Looks at the files, and uses what is new in them if it can be used.
    pub async fn look(&self) {
        let read = Pair::read(&self.files).await;
        let print = print(&read);
        if self.seen().print == print {
            return;
        }
        let trouble = match read.and_then(|pair| pair.certified(&self.files)) {
            Ok(key) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                self.metrics.certificate(CertificateLoad::Loaded);
                tracing::info!(file = %self.files.certificate.display(), "a new certificate is shown from now on");
                None
            }
            Err(error) => {
                self.metrics.certificate(CertificateLoad::Failed);
                tracing::error!(%error, "the new certificate cannot be used, so that the old one is shown until it ends: mend the files");
                Some(error.to_string())
            }
        };
        *self.seen() = Seen { print, trouble };
    }

    /// Why what is in the files is not what callers are shown; absent: it is.
    pub fn trouble(&self) -> Option<String> {
        self.seen().trouble.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // It is replaced in one go, so a panic elsewhere leaves it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

/// Looks at the files as long as it is there.
#[derive(Debug)]
pub struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
