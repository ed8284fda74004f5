//! Where to connect, and as what: flags win over the environment, that over the file, that over defaults.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    cli::{ConfigKey, Global},
    environment::Environment,
    error::Error,
};

/// Where the control plane is, unless told.
pub const DEFAULT_ADDRESS: &str = "agents-grpc.agents.svc.cluster.local:50051";
/// The namespace, unless told.
pub const DEFAULT_NAMESPACE: &str = "agents";
/// More than any configuration has: something else was put at its place.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl ConfigFile {
    /// Reads the file; one that is not there is empty.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let remedy = "mend it, or remove it and run `agentctl config init`";
        match fs::metadata(path) {
            Ok(about) if about.len() > FILE_BYTES_MAX => {
                return Err(Error::Validation(format!(
                    "{} is no configuration of agentctl: it has {} bytes; {remedy}",
                    path.display(),
                    about.len()
                )));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(Error::Validation(format!(
                    "{} cannot be read: {error}",
                    path.display()
                )));
            }
        }
        let text = fs::read_to_string(path)
            .map_err(|error| Error::Validation(format!("{} cannot be read: {error}", path.display())))?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Validation(format!("{}: {error}; {remedy}", path.display())))
    }

    /// Writes the file so that nobody else can read it: it may hold a token. It takes the place of the one before at once, so that no
    /// break leaves half of it.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let failed =
            |error: std::io::Error| Error::Unknown(format!("{} cannot be written: {error}", path.display()));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(self)?;
        // Where it is a link, the file that it leads to is the one that people keep.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // Two of us at the same time do not write into each other's.
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let written = written(&new, &text).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            // It is of no use to anybody; that it cannot be removed says nothing new.
            let _ = fs::remove_file(&new);
        }
        written.map_err(failed)
    }

    /// Changes one value; an empty text forgets it.
    pub fn set(&mut self, key: ConfigKey, value: &str) -> Result<(), Error> {
        let kept = (!value.is_empty()).then(|| value.to_owned());
        match key {
            ConfigKey::Namespace => self.namespace = kept,
            ConfigKey::Address => self.address = kept,
            ConfigKey::Token => self.token = kept,
            ConfigKey::Kubeconfig => self.kubeconfig = kept,
            ConfigKey::Context => self.context = kept,
            ConfigKey::Tls => {
                self.tls = match value.to_ascii_lowercase().as_str() {
                    "" => None,
                    "true" | "1" | "yes" | "on" => Some(true),
                    "false" | "0" | "no" | "off" => Some(false),
                    _ => return Err(Error::Validation(format!("tls is '{value}': give true or false"))),
                }
            }
        }
        Ok(())
    }
}

/// How to talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kube,
    Grpc,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File,
    Default,
}

impl Source {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// A value, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<T> {
    pub value: T,
    pub source: Source,
}

/// What holds for this call.
#[derive(Clone, Debug)]
pub struct Choices {
    pub mode: Chosen<Mode>,
    /// Absent: that of the kubeconfig's context, else [`DEFAULT_NAMESPACE`].
    pub namespace: Chosen<Option<String>>,
    pub address: Chosen<String>,
    pub token: Chosen<Option<String>>,
    pub tls: Chosen<bool>,
    /// Whom the certificate of the control plane has to be signed by, instead of whom this machine trusts.
    pub ca_cert: Chosen<Option<String>>,
    /// The certificate that we show, and its key.
    pub client_cert: Chosen<Option<String>>,
    pub client_key: Chosen<Option<String>>,
    pub kubeconfig: Chosen<Option<String>>,
    pub context: Chosen<Option<String>>,
    pub no_input: bool,
    pub yes: bool,
    /// Where the file is, or would be.
    pub file: Option<PathBuf>,
}

impl Choices {
    /// Puts flags, environment and file together.
    pub fn of(global: &Global, environment: &Environment) -> Result<Self, Error> {
        let file = environment.config_file();
        let kept = match &file {
            Some(path) => ConfigFile::read(path)?,
            None => ConfigFile::default(),
        };
        let text = |flag: &Option<String>, variables: &[&str], kept: &Option<String>| {
            first([
                (flag.clone(), Source::Flag),
                (
                    environment.first(variables).map(str::to_owned),
                    Source::Environment,
                ),
                (kept.clone(), Source::File),
            ])
        };
        let tls_flag = global
            .tls
            .then_some(true)
            .or_else(|| global.no_tls.then_some(false));
        let tls = first([
            (tls_flag, Source::Flag),
            (environment.flag("AGENTCTL_TLS"), Source::Environment),
            (kept.tls, Source::File),
        ]);
        let address = text(
            &global.server,
            &["AGENTCTL_SERVER", "AGENTCTL_ADDRESS", "JANGAR_GRPC_ADDRESS"],
            &kept.address,
        );
        Ok(Self {
            mode: mode(global, environment)?,
            namespace: text(&global.namespace, &["AGENTCTL_NAMESPACE"], &kept.namespace),
            address: Chosen {
                value: address.value.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
                source: address.source,
            },
            token: text(
                &global.token,
                &["AGENTCTL_TOKEN", "JANGAR_GRPC_TOKEN"],
                &kept.token,
            ),
            tls: Chosen {
                value: tls.value.unwrap_or(false),
                source: tls.source,
            },
            ca_cert: text(&None, &["AGENTCTL_CA_CERT"], &None),
            client_cert: text(&None, &["AGENTCTL_CLIENT_CERT"], &None),
            client_key: text(&None, &["AGENTCTL_CLIENT_KEY"], &None),
            kubeconfig: text(&global.kubeconfig, &["AGENTCTL_KUBECONFIG"], &kept.kubeconfig),
            context: text(&global.context, &["AGENTCTL_CONTEXT"], &kept.context),
            no_input: global.no_input || environment.flag("AGENTCTL_NO_INPUT") == Some(true),
            yes: global.yes,
            file,
        })
    }

    /// The file of the configuration, which has to be somewhere if it is to be written.
    pub fn config_file(&self) -> Result<&Path, Error> {
        self.file.as_deref().ok_or_else(|| {
            Error::Validation("there is no place for a configuration: set HOME or XDG_CONFIG_HOME".to_owned())
        })
    }
}

/// Writes a file that only we can read.
fn written(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn first<T, const N: usize>(sources: [(Option<T>, Source); N]) -> Chosen<Option<T>> {
    let found = sources
        .into_iter()
        .find_map(|(value, source)| value.map(|value| (value, source)));
    match found {
        Some((value, source)) => Chosen {
            value: Some(value),
            source,
        },
        None => Chosen {
            value: None,
            source: Source::Default,
        },
    }
}

fn mode(global: &Global, environment: &Environment) -> Result<Chosen<Mode>, Error> {
    let chosen = |value, source| Ok(Chosen { value, source });
    if global.grpc {
        return chosen(Mode::Grpc, Source::Flag);
    }
    if global.kube {
        return chosen(Mode::Kube, Source::Flag);
    }
    match environment
        .get("AGENTCTL_MODE")
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        None => chosen(Mode::Kube, Source::Default),
        Some("kube") => chosen(Mode::Kube, Source::Environment),
        Some("grpc") => chosen(Mode::Grpc, Source::Environment),
        Some(other) => Err(Error::Validation(format!(
            "AGENTCTL_MODE is '{other}': set it to kube or grpc, or leave it out"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(text: &str) -> (tempfile::TempDir, String) {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("agentctl");
        fs::create_dir_all(&path).expect("a directory");
        fs::write(path.join("config.json"), text).expect("a file");
        let base = home.path().to_str().expect("a path").to_owned();
        (home, base)
    }

    #[test]
    fn flags_win_over_the_environment_that_over_the_file_that_over_defaults() {
        let (_home, base) =
            with_file(r#"{"namespace": "of-file", "context": "of-file", "token": "of-file"}"#);
        let environment = Environment::from([
            ("XDG_CONFIG_HOME", base.as_str()),
            ("AGENTCTL_NAMESPACE", "of-env"),
            ("AGENTCTL_CONTEXT", "of-env"),
        ]);
        let global = Global {
            namespace: Some("of-flag".to_owned()),
            ..Global::default()
        };
        let choices = Choices::of(&global, &environment).expect("choices");
        let shown =
            |chosen: &Chosen<Option<String>>| (chosen.value.clone().unwrap_or_default(), chosen.source);
        assert_eq!(shown(&choices.namespace), ("of-flag".to_owned(), Source::Flag));
        assert_eq!(
            shown(&choices.context),
            ("of-env".to_owned(), Source::Environment)
        );
        assert_eq!(shown(&choices.token), ("of-file".to_owned(), Source::File));
        assert_eq!(choices.address.value, DEFAULT_ADDRESS);
        assert_eq!(choices.address.source, Source::Default);
    }

    #[test]
    fn a_file_that_is_no_configuration_is_named() {
        let (_home, base) = with_file("namespace: team");
        let environment = Environment::from([("XDG_CONFIG_HOME", base.as_str())]);
        let error = Choices::of(&Global::default(), &environment).expect_err("no JSON");
        assert_eq!(error.code(), crate::error::VALIDATION);
        assert!(error.to_string().contains("config.json"), "{error}");
    }

    #[test]
    fn an_unknown_mode_is_an_error() {
        let environment = Environment::from([("AGENTCTL_MODE", "carrier-pigeon")]);
        assert!(Choices::of(&Global::default(), &environment).is_err());
    }

    #[test]
    fn a_new_file_takes_the_place_of_the_old_one_at_once() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("config.json");
        let mut file = ConfigFile::default();
        file.set(ConfigKey::Namespace, "one").expect("a namespace");
        file.write(&path).expect("a file");
        let mut before = fs::File::open(&path).expect("there");
        file.set(ConfigKey::Namespace, "two").expect("a namespace");
        file.write(&path).expect("again");
        // Whoever reads the old one still reads the whole of it.
        let mut text = String::new();
        std::io::Read::read_to_string(&mut before, &mut text).expect("readable");
        assert!(text.contains("one") && text.ends_with("}\n"), "{text}");
        assert_eq!(ConfigFile::read(&path).expect("readable"), file);
        assert_eq!(fs::read_dir(home.path()).expect("there").count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("deep/config.json");
        let mut file = ConfigFile::default();
        file.set(ConfigKey::Token, "secret").expect("a token");
        file.write(&path).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("open");
        file.write(&path).expect("again");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ConfigFile::read(&path).expect("readable"), file);
    }
}
