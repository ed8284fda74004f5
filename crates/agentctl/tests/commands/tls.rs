//! The way to a control plane that encrypts, with an authority of its own.

use std::sync::Arc;

use jangar_engine::settings::TlsFiles;
use jangar_server::{metrics::Metrics, tls::Certificate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use crate::{
    plane::Having,
    support::{Cluster, transcript},
};

/// An authority, and what it has signed, as files.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self {
            directory: tempfile::tempdir().unwrap(),
            issuer,
        };
        std::fs::write(this.path("ca.pem"), this.issuer.pem()).unwrap();
        this
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// A certificate and its key, in two files of that name.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (at, key_at) = (
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key")),
        );
        std::fs::write(&at, certificate.pem()).unwrap();
        std::fs::write(&key_at, key.serialize_pem()).unwrap();
        (at, key_at)
    }
}

async fn listed(cluster: &Cluster, variables: &[(&str, &str)]) -> String {
    let arguments = ["--tls", "list", "agents"];
    let mut command = cluster.command(&arguments);
    command.envs(variables.iter().copied());
    transcript(command, &arguments, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_is_known_by_the_authority_that_signed_its_certificate() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("server");
    let files = TlsFiles {
        certificate: certificate.into(),
        key: key.into(),
    };
    let certificate = Certificate::load(files, Arc::new(Metrics::default()))
        .await
        .unwrap();
    let having = Having {
        tls: Some(Arc::new(certificate.server_config().unwrap())),
        ..Having::default()
    };
    let cluster = Cluster::behind("sg0060", having).await;
    let good = listed(&cluster, &[("AGENTCTL_CA_CERT", &authority.path("ca.pem"))]).await;
    assert!(good.ends_with("= 0\n\n"), "{good}");
    let stranger = Authority::new();
    let bad = listed(&cluster, &[("AGENTCTL_CA_CERT", &stranger.path("ca.pem"))]).await;
    assert!(bad.ends_with("= 4\n\n"), "{bad}");
    assert!(bad.to_lowercase().contains("certificate"), "{bad}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_shown_to_whoever_asks_for_one() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign("server");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let having = Having {
        tls: Some(Arc::new(config)),
        ..Having::default()
    };
    let cluster = Cluster::behind("sg0061", having).await;
    let (own, own_key) = authority.sign("client");
    let ca = authority.path("ca.pem");
    let known = [
        ("AGENTCTL_CA_CERT", ca.as_str()),
        ("AGENTCTL_CLIENT_CERT", &own),
        ("AGENTCTL_CLIENT_KEY", &own_key),
    ];
    let good = listed(&cluster, &known).await;
    assert!(good.ends_with("= 0\n\n"), "{good}");
    let bad = listed(&cluster, &known[..1]).await;
    assert!(bad.ends_with("= 4\n\n"), "{bad}");
}
