//! What an operator chooses about the control plane. Its break-glass token is a secret, and is not read here.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::{
    mistakes::Wrong,
    reader::{Reader, whole_number},
    table::{Unset, Variable},
};

/// What Kubernetes puts into a variable of a Service begins with this.
const SERVICE_LINK: &str = "tcp://";

const TLS_CERT_FILE: &str = "JANGAR_TLS_CERT_FILE";
const TLS_KEY_FILE: &str = "JANGAR_TLS_KEY_FILE";

/// Where the control plane listens for gRPC, what it shows to callers, and where its metrics are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneSettings {
    pub grpc_enabled: bool,
    pub grpc_host: IpAddr,
    pub grpc_port: u16,
    /// Host and port at once; goes before both.
    pub grpc_address: Option<SocketAddr>,
    pub metrics_enabled: bool,
    /// The path of the metrics beside the API, for callers with a token.
    pub metrics_path: String,
    /// What encrypts HTTP and gRPC; absent: nothing does.
    pub tls: Option<TlsFiles>,
}

/// The files with the certificate of the control plane and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and after it those that lead to the authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The parts of [`TlsFiles`], which are of no use apart.
#[derive(Default)]
pub(super) struct TlsDraft {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl TlsDraft {
    pub(super) fn finish(self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.certificate?,
            key: self.key?,
        })
    }

    /// The variable that is set, and the one that is missing beside it.
    pub(super) fn alone(&self) -> Option<(&'static str, &'static str)> {
        match (&self.certificate, &self.key) {
            (Some(_), None) => Some((TLS_CERT_FILE, TLS_KEY_FILE)),
            (None, Some(_)) => Some((TLS_KEY_FILE, TLS_CERT_FILE)),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

impl Default for ControlPlaneSettings {
    fn default() -> Self {
        Self {
            grpc_enabled: true,
            grpc_host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            grpc_port: 50_051,
            grpc_address: None,
            metrics_enabled: true,
            metrics_path: "/metrics".to_owned(),
            tls: None,
        }
    }
}

impl ControlPlaneSettings {
    /// Where gRPC is listened for, if it is.
    pub fn grpc(&self) -> Option<SocketAddr> {
        let apart = || SocketAddr::new(self.grpc_host, self.grpc_port);
        self.grpc_enabled.then(|| self.grpc_address.unwrap_or_else(apart))
    }
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "JANGAR_GRPC_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether the control plane answers gRPC.",
        reader: Reader::Switch(|draft, on| draft.settings.control_plane.grpc_enabled = on),
    },
    Variable {
        name: "JANGAR_GRPC_HOST",
        unset: Unset::Is("127.0.0.1"),
        meaning: "The address on which it does; `0.0.0.0` is every one.",
        reader: Reader::Special {
            takes: "an address, such as `0.0.0.0`, or `localhost`",
            read: |draft, text| {
                let text = if text == "localhost" { "127.0.0.1" } else { text };
                draft.settings.control_plane.grpc_host = text.parse().map_err(|_| Wrong::Illegal)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_GRPC_PORT",
        unset: Unset::Is("50051"),
        meaning: "The port on which it does; what Kubernetes sets for a Service `jangar-grpc` is passed over.",
        reader: Reader::Special {
            takes: "a port from 1 to 65535",
            read: |draft, text| {
                if !text.starts_with(SERVICE_LINK) {
                    let number = whole_number(text)?;
                    let port = u16::try_from(number).ok().filter(|port| *port > 0);
                    draft.settings.control_plane.grpc_port = port.ok_or(Wrong::OutOfRange)?;
                }
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_GRPC_ADDRESS",
        unset: Unset::Means("`JANGAR_GRPC_HOST` and `JANGAR_GRPC_PORT`"),
        meaning: "Address and port at once, which goes before both.",
        reader: Reader::Special {
            takes: "an address and a port, such as `0.0.0.0:50051`",
            read: |draft, text| {
                let text = text.replacen("localhost:", "127.0.0.1:", 1);
                draft.settings.control_plane.grpc_address = Some(text.parse().map_err(|_| Wrong::Illegal)?);
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_PROMETHEUS_METRICS_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether the control plane has its metrics beside the API, for callers with a token.",
        reader: Reader::Switch(|draft, on| draft.settings.control_plane.metrics_enabled = on),
    },
    Variable {
        name: "JANGAR_PROMETHEUS_METRICS_PATH",
        unset: Unset::Is("/metrics"),
        meaning: "The path of those metrics.",
        reader: Reader::Special {
            takes: "a path, such as `/metrics`",
            read: |draft, text| {
                let legal = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
                if !text.starts_with('/') || text.len() == 1 || !text.chars().all(legal) {
                    return Err(Wrong::Illegal);
                }
                text.clone_into(&mut draft.settings.control_plane.metrics_path);
                Ok(())
            },
        },
    },
    Variable {
        name: TLS_CERT_FILE,
        unset: Unset::Means("neither HTTP nor gRPC is encrypted"),
        meaning: "The file with the certificate that callers of the control plane are shown, as PEM; it is read again when it changes.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.tls.certificate = Some(text.into());
                Ok(())
            },
        },
    },
    Variable {
        name: TLS_KEY_FILE,
        unset: Unset::Means("neither HTTP nor gRPC is encrypted"),
        meaning: "The file with the key of that certificate, as PEM.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.tls.key = Some(text.into());
                Ok(())
            },
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn grpc(vars: &[(&str, &str)]) -> Option<SocketAddr> {
        let vars = vars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let parsed = Settings::from_vars(vars).expect("settings");
        parsed.settings.control_plane.grpc()
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn host_and_port_make_the_address_unless_it_is_given_as_a_whole() {
        assert_eq!(grpc(&[]), Some(address("127.0.0.1:50051")));
        let apart = [("JANGAR_GRPC_HOST", "0.0.0.0"), ("JANGAR_GRPC_PORT", "9")];
        assert_eq!(grpc(&apart), Some(address("0.0.0.0:9")));
        let whole = [apart[0], apart[1], ("JANGAR_GRPC_ADDRESS", "localhost:7")];
        assert_eq!(grpc(&whole), Some(address("127.0.0.1:7")));
        assert_eq!(grpc(&[("JANGAR_GRPC_ENABLED", "off")]), None);
    }

    #[test]
    fn what_kubernetes_tells_of_a_service_is_no_port() {
        let link = [("JANGAR_GRPC_PORT", "tcp://10.0.0.7:50051")];
        assert_eq!(grpc(&link), Some(address("127.0.0.1:50051")));
    }

    #[test]
    fn certificate_and_key_are_given_together_or_not_at_all() {
        let read = |set: &[&str]| {
            let vars = set
                .iter()
                .map(|name| ((*name).to_owned(), format!("/tls/{name}")));
            Settings::from_vars(vars).map(|parsed| parsed.settings.control_plane.tls)
        };
        assert_eq!(read(&[]), Ok(None));
        let both = read(&[TLS_CERT_FILE, TLS_KEY_FILE]).expect("both");
        assert_eq!(
            both.map(|files| files.certificate),
            Some("/tls/JANGAR_TLS_CERT_FILE".into())
        );
        for (set, missing) in [(TLS_CERT_FILE, TLS_KEY_FILE), (TLS_KEY_FILE, TLS_CERT_FILE)] {
            let mistakes = read(&[set]).expect_err("one alone");
            assert_eq!(
                mistakes.to_string(),
                format!(
                    "{set}='/tls/{set}': this is of no use without {missing}; set {missing} as well, or neither"
                )
            );
        }
    }
}
