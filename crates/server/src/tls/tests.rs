//! Connections with certificates that are made here, changed while connections come, and broken.

use std::{fs, path::Path};

use axum::{Router, routing::get};
use jiff::Timestamp;
use kubelite::tls::Identity;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::http::{Serving, Transport, serve};

/// The frame that a server of HTTP/2 begins with.
const SETTINGS: u8 = 4;

/// Makes an authority and a certificate, and puts the certificate and its key where the server looks for them.
fn make(directory: &Path, files: &TlsFiles) -> String {
    let identity = Identity::load_or_create(directory, &[], Timestamp::now()).expect("a certificate");
    fs::copy(directory.join("server.crt"), &files.certificate).expect("a copy");
    fs::copy(directory.join("server.key"), &files.key).expect("a copy");
    identity.ca_pem().to_owned()
}

struct Server {
    directory: TempDir,
    files: TlsFiles,
    /// Who vouches for the first certificate.
    authority: String,
    certificate: Arc<Certificate>,
    serving: Serving,
}

impl Server {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let files = TlsFiles {
            certificate: directory.path().join("tls.crt"),
            key: directory.path().join("tls.key"),
        };
        let authority = make(&directory.path().join("one"), &files);
        let metrics = Arc::new(Metrics::default());
        let certificate = Certificate::load(files.clone(), Arc::clone(&metrics))
            .await
            .expect("it can be used");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let router = Router::new().route("/", get(|| async { "hello" }));
        let config = certificate.server_config().expect("a configuration");
        let transport = Transport {
            tls: Some(Arc::new(config)),
            metrics,
        };
        let serving = serve(listener, router, transport).expect("it serves");
        Self {
            directory,
            files,
            authority,
            certificate,
            serving,
        }
    }

    /// A connection of a client that trusts this authority and speaks this protocol.
    async fn connect(&self, authority: &str, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
        roots.add(trusted).expect("an authority");
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.serving.address()).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Whether a client that trusts this authority is answered.
    async fn answers(&self, authority: &str) -> bool {
        let Ok(mut stream) = self.connect(authority, "http/1.1").await else {
            return false;
        };
        ask(&mut stream).await
    }

    fn counted(&self, load: CertificateLoad) -> u64 {
        self.certificate.metrics.certificates_counted(load)
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>) -> bool {
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await.expect("a request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let count = stream.read_buf(&mut answer).await.expect("an answer");
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&answer));
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test]
async fn callers_are_encrypted_and_what_is_not_tls_is_not_answered() {
    let server = Server::start().await;
    assert!(server.answers(&server.authority).await);
    let mut plain = TcpStream::connect(server.serving.address())
        .await
        .expect("a connection");
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("a request");
    let mut answer = Vec::new();
    // An end of any kind will do.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
}

#[tokio::test]
async fn clients_of_grpc_get_http_2_on_the_same_terms() {
    let server = Server::start().await;
    let mut stream = server.connect(&server.authority, "h2").await.expect("encrypted");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.expect("a preface");
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.expect("a frame");
    assert_eq!(frame[3], SETTINGS);
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_the_old_ones_go_on() {
    let server = Server::start().await;
    let mut old = server
        .connect(&server.authority, "http/1.1")
        .await
        .expect("encrypted");
    assert!(ask(&mut old).await);
    let renewed = make(&server.directory.path().join("two"), &server.files);
    assert!(!server.answers(&renewed).await, "nobody has looked yet");
    server.certificate.look().await;
    assert!(server.answers(&renewed).await);
    assert!(!server.answers(&server.authority).await);
    assert!(ask(&mut old).await, "a connection outlives its certificate");
    assert_eq!(server.certificate.trouble(), None);
    assert_eq!(server.counted(CertificateLoad::Loaded), 2);
    server.certificate.look().await;
    assert_eq!(server.counted(CertificateLoad::Loaded), 2, "nothing is new");
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_leaves_the_old_one_and_is_told_once() {
    let server = Server::start().await;
    let first = fs::read(&server.files.key).expect("a key");
    let other = TlsFiles {
        certificate: server.directory.path().join("other.crt"),
        key: server.directory.path().join("other.key"),
    };
    make(&server.directory.path().join("two"), &other);
    let foreign = fs::read(&other.key).expect("a key");
    let cases: [(&[u8], &str); 4] = [
        (b"nonsense with a secret in it", "holds no private key"),
        (&foreign, "cannot be used together"),
        (b"-----BEGIN secret\n", "holds no private key"),
        (&[0xff; 64], "holds no private key"),
    ];
    for (told, (content, words)) in (1..).zip(cases) {
        fs::write(&server.files.key, content).expect("a file");
        for _ in 0..3 {
            server.certificate.look().await;
        }
        let trouble = server.certificate.trouble().expect("trouble");
        assert!(trouble.contains(words), "{trouble}");
        assert!(
            trouble.contains("tls.key") && !trouble.contains("secret"),
            "{trouble}"
        );
        assert_eq!(server.counted(CertificateLoad::Failed), told);
        assert!(server.answers(&server.authority).await, "{words}");
    }
    fs::remove_file(&server.files.key).expect("it goes");
    server.certificate.look().await;
    let trouble = server.certificate.trouble().expect("trouble");
    assert!(trouble.contains("cannot be read"), "{trouble}");
    fs::write(&server.files.key, first).expect("a file");
    server.certificate.look().await;
    assert_eq!(server.certificate.trouble(), None, "it is mended");
}

#[tokio::test]
async fn a_start_without_a_pair_that_can_be_used_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let load = async || {
        let loaded = Certificate::load(files.clone(), Arc::default()).await;
        loaded.expect_err("it cannot be used").to_string()
    };
    assert!(load().await.contains("tls.crt cannot be read"));
    fs::write(&files.certificate, "").expect("a file");
    fs::write(&files.key, "").expect("a file");
    assert!(load().await.contains("tls.crt holds no certificate"));
    let file = fs::File::create(&files.certificate).expect("a file");
    file.set_len(FILE_MAX_BYTES + 1).expect("a size");
    assert!(load().await.contains("more than 1 MiB"));
}

#[tokio::test(start_paused = true)]
async fn the_files_are_looked_at_in_their_interval() {
    let server = Server::start().await;
    let following = server.certificate.follow(LOOK_EVERY);
    fs::write(&server.files.key, "broken").expect("a file");
    while server.certificate.trouble().is_none() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    drop(following);
}
