//! Which authorities are trusted: those of the system, or those that SSL_CERT_FILE and SSL_CERT_DIR name. Variables are those of a
//! whole process, so every case is played by a process of its own: this program, started again for `as_told` alone.

use std::{env, fs, path::Path, process::Stdio, sync::Arc};

use jangar_forge::{Forge, Kind, Patience, Token};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    process::Command,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    played::{Played, TOKEN, say},
    said::github_comparison,
};

const ADDRESS: &str = "JANGAR_TEST_FORGE";

/// The other tests of this file start it with the address of a forge, and read what it prints. By itself it asks one without encryption,
/// which needs no authority, whatever the variables of this process say.
#[tokio::test]
async fn as_told() {
    if let Ok(address) = env::var(ADDRESS) {
        println!("said: {}", asked(&address).await);
        return;
    }
    let played = Played::new(vec![say(200, &github_comparison(3))]).await;
    assert_eq!(asked(&played.url).await, "Ok(3)");
}

/// What a forge answers this process.
async fn asked(address: &str) -> String {
    let forge = Forge::new(
        Kind::Github,
        address,
        "example/adder",
        Token::new(TOKEN),
        Patience::none(),
    );
    match forge {
        Ok(forge) => format!("{:?}", forge.commits_ahead("main", "fix").await),
        Err(error) => error.to_string(),
    }
}

/// What a process hears from a forge, with this variable.
async fn heard(address: &str, variable: &str, path: &Path) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "trust::as_told", "--nocapture"])
        .env(ADDRESS, address)
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR")
        .env(variable, path)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, said) = text.split_once("said: ").unwrap();
    said.lines().next().unwrap().to_owned()
}

/// A forge with a certificate, and its authority in PEM.
async fn encrypted() -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = own.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Whoever does not trust the certificate says so here and goes.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.unwrap() > 0 {}
            let answer =
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 15\r\n\r\n{\"ahead_by\": 3}";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    (address, authority.pem())
}

#[test]
fn every_authority_of_the_images_can_be_used() {
    let mut roots = RootCertStore::empty();
    let (used, unused) =
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());

    assert_eq!(
        (used, unused),
        (webpki_root_certs::TLS_SERVER_ROOT_CERTS.len(), 0)
    );
    assert_ne!(used, 0);
}

#[tokio::test]
async fn plain_http_needs_no_authority_and_https_says_that_there_is_none() {
    let played = Played::new(vec![say(200, &github_comparison(3))]).await;
    let nothing = tempfile::NamedTempFile::new().unwrap();

    assert_eq!(heard(&played.url, "SSL_CERT_FILE", nothing.path()).await, "Ok(3)");

    let (address, _) = encrypted().await;
    let said = heard(&address, "SSL_CERT_FILE", nothing.path()).await;
    assert!(said.contains("no authority is trusted"), "{said}");
}

#[tokio::test]
async fn a_forge_is_trusted_by_the_authority_that_a_variable_names_and_by_no_other() {
    let (address, authority) = encrypted().await;
    let (_, other) = encrypted().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.crt");
    fs::write(&file, authority).unwrap();

    assert_eq!(heard(&address, "SSL_CERT_FILE", &file).await, "Ok(3)");
    assert_eq!(heard(&address, "SSL_CERT_DIR", directory.path()).await, "Ok(3)");

    fs::write(&file, other).unwrap();
    let said = heard(&address, "SSL_CERT_FILE", &file).await;
    assert!(said.contains("invalid peer certificate"), "{said}");
}
