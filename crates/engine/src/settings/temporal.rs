//! What an operator chooses about the Temporal server whose workflows do the work of runs.

use std::path::PathBuf;

use super::{
    mistakes::Wrong,
    reader::Reader,
    table::{Unset, Variable},
};

/// Where a Temporal server is in a cluster, unless the operator says otherwise.
pub const DEFAULT_ADDRESS: &str = "temporal-frontend.temporal.svc.cluster.local:7233";

/// The rules of the runtime `temporal`. What is secret stands in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporalSettings {
    /// Host and port of the server. Absent: no such run is executed.
    pub address: Option<String>,
    /// The namespace of Temporal that runs are in which name none.
    pub namespace: String,
    /// Whether the connection is encrypted; the files below imply it.
    pub tls: bool,
    /// The certificates of those who may vouch for the server; absent: those that this machine trusts.
    pub server_ca_file: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host of the address.
    pub server_name: Option<String>,
    /// This program's own certificate and its key, for servers that ask for one.
    pub client_cert_file: Option<PathBuf>,
    pub client_key_file: Option<PathBuf>,
    /// The file with the API key.
    pub api_key_file: Option<PathBuf>,
}

impl Default for TemporalSettings {
    fn default() -> Self {
        Self {
            address: None,
            namespace: "default".to_owned(),
            tls: false,
            server_ca_file: None,
            server_name: None,
            client_cert_file: None,
            client_key_file: None,
            api_key_file: None,
        }
    }
}

impl TemporalSettings {
    /// Whether the connection is encrypted, because the operator says so or because of what else was given.
    pub const fn is_encrypted(&self) -> bool {
        self.tls
            || self.server_ca_file.is_some()
            || self.server_name.is_some()
            || self.client_cert_file.is_some()
            || self.api_key_file.is_some()
    }
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "TEMPORAL_ADDRESS",
        unset: Unset::Means(
            "`temporal-frontend.temporal.svc.cluster.local:7233`; under `jangar up` none: runs of the runtime `temporal` are \
             refused",
        ),
        meaning: "The host and the port of the Temporal server.",
        reader: Reader::Special {
            takes: "a host and a port, such as `temporal.example.com:7233`",
            read: |draft, text| {
                draft.settings.temporal.address = Some(address(text)?);
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_NAMESPACE",
        unset: Unset::Is("default"),
        meaning: "The namespace of Temporal for runs that name none.",
        reader: Reader::Special {
            takes: "the name of a namespace of Temporal",
            read: |draft, text| {
                if text.trim().is_empty() {
                    return Err(Wrong::Illegal);
                }
                text.trim().clone_into(&mut draft.settings.temporal.namespace);
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_TLS",
        unset: Unset::Is("false"),
        meaning: "Whether the connection is encrypted; each of the variables below implies it.",
        reader: Reader::Switch(|draft, on| draft.settings.temporal.tls = on),
    },
    Variable {
        name: "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
        unset: Unset::Means("the authorities that this machine trusts"),
        meaning: "The file with the certificates of those who may vouch for the server, as PEM.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.settings.temporal.server_ca_file = Some(text.into());
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_TLS_SERVER_NAME",
        unset: Unset::Means("the host of `TEMPORAL_ADDRESS`"),
        meaning: "The name that the certificate of the server has to have.",
        reader: Reader::Special {
            takes: "the name of a host",
            read: |draft, text| {
                draft.settings.temporal.server_name = Some(text.trim().to_owned());
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_TLS_CLIENT_CERT_PATH",
        unset: Unset::Means("none"),
        meaning: "The file with the certificate of this program, as PEM, for a server that asks for one.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.settings.temporal.client_cert_file = Some(text.into());
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_TLS_CLIENT_KEY_PATH",
        unset: Unset::Means("none"),
        meaning: "The file with the key of that certificate, as PEM.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.settings.temporal.client_key_file = Some(text.into());
                Ok(())
            },
        },
    },
    Variable {
        name: "TEMPORAL_API_KEY_FILE",
        unset: Unset::Means("none"),
        meaning: "The file with the API key that the server is shown; it is read again for each connection.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.settings.temporal.api_key_file = Some(text.into());
                Ok(())
            },
        },
    },
];

/// A host and a port, and nothing else: a scheme or a path would be ignored by whoever connects.
fn address(text: &str) -> Result<String, Wrong> {
    let text = text.trim();
    let (host, port) = text.rsplit_once(':').ok_or(Wrong::Illegal)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || (bracketed && byte == b':');
    let port_is_one = port.parse::<u16>().is_ok_and(|port| port > 0);
    if bare.is_empty() || !bare.bytes().all(plain) || !port_is_one {
        return Err(Wrong::Illegal);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in [
            "127.0.0.1:7233",
            "[::1]:7233",
            "temporal.example.com:443",
            " localhost:1 ",
        ] {
            assert_eq!(address(good).ok(), Some(good.trim().to_owned()), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "localhost:",
            ":7233",
            "localhost:0",
            "https://localhost:7233",
            "a:b:1",
            "a/b:1",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
