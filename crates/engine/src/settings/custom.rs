//! What an operator chooses about endpoints that do the work of runs.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use super::{
    mistakes::{Wrong, shown},
    reader::{Reader, words},
    table::{Unset, Variable},
};
use crate::custom::{
    address::Network,
    endpoint::{Endpoint, EndpointPattern},
};

/// More than a year is taken for a slip.
const TIMEOUT_MAX_SECONDS: u32 = 31_536_000;

/// The rules of the runtime `custom`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomSettings {
    /// Which endpoints may be called.
    pub allowed_endpoints: Vec<EndpointPattern>,
    /// Which addresses may be connected to although they are not of the public internet.
    pub open_networks: Vec<Network>,
    /// Under which address endpoints reach this program, without a slash at its end. Absent: no such run is executed.
    pub callback_url: Option<String>,
    /// Where callbacks are listened for, unless they share the address of something else.
    pub callback_listen: SocketAddr,
    /// The file with the key that tokens are signed with.
    pub key_file: Option<PathBuf>,
    /// How long an endpoint has, unless a run or its Agent says otherwise.
    pub timeout: Duration,
}

impl Default for CustomSettings {
    fn default() -> Self {
        Self {
            allowed_endpoints: vec![EndpointPattern::any_with_tls()],
            open_networks: Vec::new(),
            callback_url: None,
            callback_listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8081)),
            key_file: None,
            timeout: Duration::from_hours(24),
        }
    }
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL",
        unset: Unset::Means("none: runs of the runtime `custom` are refused"),
        meaning: "The address under which endpoints reach the callbacks of this program.",
        reader: Reader::Special {
            takes: "a URL, such as `https://jangar.example.com`",
            read: |draft, text| {
                let text = text.trim_end_matches('/');
                let url: Endpoint = text.parse().map_err(|_| Wrong::Illegal)?;
                if url.target().contains('?') {
                    return Err(Wrong::Illegal);
                }
                draft.settings.custom.callback_url = Some(text.to_owned());
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN",
        unset: Unset::Is("0.0.0.0:8081"),
        meaning: "Where `jangar controllers` listens for callbacks; `jangar up` has them beside its probes.",
        reader: Reader::Special {
            takes: "an address and a port, such as `0.0.0.0:8081`",
            read: |draft, text| {
                draft.settings.custom.callback_listen = text.parse().map_err(|_| Wrong::Illegal)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_KEY_FILE",
        unset: Unset::Means("none; `jangar up` makes one in its data directory"),
        meaning: "The file with the key that tokens for callbacks are signed with, at least 32 bytes long.",
        reader: Reader::Special {
            takes: "the path of a file",
            read: |draft, text| {
                draft.settings.custom.key_file = Some(text.into());
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS",
        unset: Unset::Is("https://*"),
        meaning: "The endpoints that runs may name; a path allows what is below it, no port allows all.",
        reader: Reader::Special {
            takes: "a comma list or a JSON array of URLs, whose host may be `*` or begin with `*.`",
            read: |draft, text| {
                draft.settings.custom.allowed_endpoints = parsed(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS",
        unset: Unset::Means("none: only addresses of the public internet"),
        meaning: "The private, loopback and link-local addresses that endpoints may have all the same.",
        reader: Reader::Special {
            takes: "a comma list or a JSON array of ranges of addresses, such as `10.0.0.0/8`",
            read: |draft, text| {
                draft.settings.custom.open_networks = parsed(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_CUSTOM_RUNTIME_TIMEOUT_SECONDS",
        unset: Unset::Is("86400"),
        meaning: "How long an endpoint has for its work, unless the run or its Agent says otherwise.",
        reader: Reader::Number {
            from: 1,
            to: TIMEOUT_MAX_SECONDS,
            or_zero: false,
            set: |draft, number| {
                draft.settings.custom.timeout = Duration::from_secs(u64::from(number));
            },
        },
    },
];

fn parsed<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, Wrong> {
    let parse = |(index, word): (usize, String)| {
        let position = index + 1;
        if word.trim().is_empty() {
            return Err(Wrong::EmptyEntry { position });
        }
        let entry = shown(&word);
        word.parse().map_err(|_| Wrong::IllegalEntry { position, entry })
    };
    words(text)?.into_iter().enumerate().map(parse).collect()
}
