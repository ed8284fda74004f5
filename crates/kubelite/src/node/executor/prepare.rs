//! From a container of a pod to what its process is told: the command, the environment, and what is mounted where.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use serde::{Deserialize, Serialize};

use super::{
    Settings,
    attempt::make_private_dir,
    env,
    objects::{ConfigError, Objects},
    run::{Files, Mount, Run, Sandbox},
    volumes,
};

/// Who a container is if it must not be root and nobody says who it is instead.
const NOBODY_ELSE: u32 = 65_532;
const DEFAULT_TERMINATION_PATH: &str = "/dev/termination-log";
/// Tells a container without a sandbox which directory stands for its root. `docs/kubelite.md` says what it is for.
const ROOT_VARIABLE: &str = "KUBELITE_ROOT";
/// Where the names of hosts are looked up.
const RESOLVER: &str = "/etc/resolv.conf";

/// Where a volume of a pod is on this machine.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
    /// The claim that it belongs to.
    pub(crate) claim: Option<String>,
}

/// The volumes of a pod by name.
pub(crate) type Places = BTreeMap<String, Place>;

/// Why a container cannot be started now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "images are not pulled here, so it is not known what {image:?} would run: set the container's `command` to a program \
         that is installed on this machine or that an init container puts into a volume"
    )]
    NoCommand { image: String },
    #[error("cannot make the container's files: {0}")]
    Files(#[from] io::Error),
}

/// Describes one run of a container, and makes the files that belong to it alone.
pub(crate) fn prepare(
    settings: &Settings,
    pod: &Pod,
    container: &Container,
    objects: &Objects,
    places: &Places,
    files: &Files,
) -> Result<Run, PrepareError> {
    let declared = env::environment(pod, container, objects, &settings.facts)?;
    let mut command = command(settings, container, &declared)?;
    let provided = settings.config.provided.iter();
    let mut mounts: Vec<Mount> = provided
        .map(|(target, source)| mount(source.clone(), target.clone(), true))
        .collect();
    mounts.extend(volume_mounts(container, places, &declared)?);
    for directory in [&files.dir, &files.tmp(), &files.home()] {
        make_private_dir(directory)?;
    }
    fs::File::create(files.message())?;
    mounts.push(mount(files.message(), termination_path(container), false));
    let mut working_dir = container
        .working_dir
        .as_deref()
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let mut env = base_environment(settings, pod);
    let sandbox = match &settings.unsandboxed {
        None => {
            env.extend(declared);
            Some(sandbox(settings, pod, container, files, mounts)?)
        }
        Some(_) => {
            let root = files.root();
            make_private_dir(&root)?;
            let mounts = [temporary(files), exposed(settings), mounts].concat();
            link_mounts(&root, &mounts)?;
            let inside = |text: &str| translate(text, &root, &mounts);
            env.extend(declared.into_iter().map(|(name, value)| (name, inside(&value))));
            env.insert(ROOT_VARIABLE.to_owned(), text(&root));
            for (name, path) in [("HOME", files.home()), ("TMPDIR", files.tmp())] {
                env.entry(name.to_owned()).or_insert_with(|| text(&path));
            }
            command = command.iter().map(|part| inside(part)).collect();
            // The default is the root, whatever stands for it, so that a relative path means the same with a sandbox.
            working_dir = Some(working_dir.map_or_else(|| root.clone(), |path| inside(&text(&path)).into()));
            None
        }
    };
    Ok(Run {
        command,
        env: env.into_iter().collect(),
        working_dir,
        log_bytes_max: settings.config.log_bytes_max,
        sandbox,
        gated: false,
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn mount(source: PathBuf, target: PathBuf, read_only: bool) -> Mount {
    Mount {
        source,
        sub_path: None,
        target,
        read_only,
    }
}

/// The command and its arguments, with references to the environment replaced.
fn command(
    settings: &Settings,
    container: &Container,
    env: &BTreeMap<String, String>,
) -> Result<Vec<String>, PrepareError> {
    let image = container.image.as_deref().unwrap_or("");
    let own = container.command.as_deref().filter(|command| !command.is_empty());
    let command = match own {
        Some(command) => command.iter().map(|part| env::expand(part, env)).collect(),
        None => settings
            .config
            .entrypoints
            .get(image)
            .cloned()
            .ok_or_else(|| PrepareError::NoCommand {
                image: image.to_owned(),
            })?,
    };
    let args = container.args.iter().flatten().map(|part| env::expand(part, env));
    Ok(command.into_iter().chain(args).collect())
}

/// What every container finds in its environment unless it says otherwise.
fn base_environment(settings: &Settings, pod: &Pod) -> BTreeMap<String, String> {
    let hostname = pod.metadata.name.clone().unwrap_or_default();
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), settings.config.path.clone()),
        ("HOSTNAME".to_owned(), hostname),
    ]);
    if settings.unsandboxed.is_none() {
        let home = settings.home.as_deref().unwrap_or(Path::new("/tmp"));
        env.insert("HOME".to_owned(), text(home));
    }
    env
}

fn termination_path(container: &Container) -> PathBuf {
    let path = container.termination_message_path.as_deref();
    PathBuf::from(
        path.filter(|path| !path.is_empty())
            .unwrap_or(DEFAULT_TERMINATION_PATH),
    )
}

fn volume_mounts(
    container: &Container,
    places: &Places,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, ConfigError> {
    let mut mounts: Vec<Mount> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|wanted| volume_mount(wanted, places, env))
        .collect::<Result<_, _>>()?;
    // What lies below another mount comes after it.
    mounts.sort_by(|one, other| one.target.cmp(&other.target));
    Ok(mounts)
}

fn volume_mount(
    wanted: &VolumeMount,
    places: &Places,
    env: &BTreeMap<String, String>,
) -> Result<Mount, ConfigError> {
    let place = places.get(&wanted.name).ok_or_else(|| ConfigError::NoVolume {
        name: wanted.name.clone(),
    })?;
    let expression = wanted.sub_path_expr.as_deref().filter(|path| !path.is_empty());
    let sub_path = match expression {
        Some(expression) => Some(env::expand(expression, env)),
        None => wanted.sub_path.clone().filter(|path| !path.is_empty()),
    };
    if let Some(path) = sub_path
        .as_deref()
        .filter(|path| !volumes::stays_inside(Path::new(path)))
    {
        return Err(ConfigError::PathLeavesVolume {
            path: path.to_owned(),
        });
    }
    Ok(Mount {
        source: place.path.clone(),
        sub_path: sub_path.map(PathBuf::from),
        // A relative path is relative to the root.
        target: Path::new("/").join(&wanted.mount_path),
        read_only: place.read_only || wanted.read_only == Some(true),
    })
}

/// Every container has a place of its own for temporary files.
fn temporary(files: &Files) -> Vec<Mount> {
    ["/tmp", "/var/tmp"]
        .map(|target| mount(files.tmp(), PathBuf::from(target), false))
        .into()
}

/// What every container sees of places that are otherwise its own.
fn exposed(settings: &Settings) -> Vec<Mount> {
    let exposed = settings.config.exposed.iter();
    exposed
        .map(|path| mount(path.clone(), path.clone(), true))
        .collect()
}

/// What the container sees of the machine, and what it sees instead of the rest.
fn sandbox(
    settings: &Settings,
    pod: &Pod,
    container: &Container,
    files: &Files,
    own: Vec<Mount>,
) -> Result<Sandbox, ConfigError> {
    let mut mounts = temporary(files);
    if let Some(home) = &settings.home {
        mounts.push(mount(files.home(), home.clone(), false));
    }
    // Where names are resolved is often said by a file in `/run`, which is private otherwise.
    if let Some(directory) = fs::canonicalize(RESOLVER)
        .ok()
        .as_deref()
        .and_then(Path::parent)
        .filter(|directory| directory.starts_with("/run"))
    {
        mounts.push(mount(directory.to_owned(), directory.to_owned(), true));
    }
    mounts.extend(exposed(settings));
    mounts.extend(own);
    let (uid, gid) = identity(pod, container, settings.ids)?;
    Ok(Sandbox {
        hidden: settings.hidden.clone(),
        mounts,
        uid,
        gid,
    })
}

/// Who the container believes to be: whom it asks for, else whoever runs this program.
fn identity(pod: &Pod, container: &Container, own: (u32, u32)) -> Result<(u32, u32), ConfigError> {
    let inner = container.security_context.as_ref();
    let outer = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let user = inner
        .and_then(|context| context.run_as_user)
        .or_else(|| outer.and_then(|context| context.run_as_user));
    let group = inner
        .and_then(|context| context.run_as_group)
        .or_else(|| outer.and_then(|context| context.run_as_group));
    let not_root = inner
        .and_then(|context| context.run_as_non_root)
        .or_else(|| outer.and_then(|context| context.run_as_non_root))
        == Some(true);
    let id = |asked: Option<i64>, own: u32| asked.and_then(|asked| u32::try_from(asked).ok()).unwrap_or(own);
    let uid = match id(user, own.0) {
        0 if not_root && user.is_some() => return Err(ConfigError::RootNotAllowed),
        0 if not_root => NOBODY_ELSE,
        uid => uid,
    };
    Ok((uid, id(group, own.1)))
}

/// Without a sandbox there are no mounts: each is a link below a directory that stands for the root.
fn link_mounts(root: &Path, mounts: &[Mount]) -> io::Result<()> {
    for (index, mount) in mounts.iter().enumerate() {
        let mut later = mounts.iter().skip(index + 1);
        // What is mounted later covers what is there.
        if later.any(|other| mount.target.starts_with(&other.target)) {
            continue;
        }
        let mut source = mount.source.clone();
        if let Some(sub_path) = &mount.sub_path {
            source.push(sub_path);
            if !source.exists() {
                fs::create_dir_all(&source)?;
            }
        }
        let target = below(root, &mount.target);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        link(&source, &target)?;
    }
    Ok(())
}

/// Makes a link, also in place of another one: a mount inside of a volume leaves its link there, and the volume may be older
/// than this pod.
fn link(source: &Path, target: &Path) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(present) if present.is_symlink() => fs::remove_file(target)?,
        Ok(_) => {
            let message = format!(
                "{} is in the volume already, and without a sandbox nothing can be mounted over it",
                target.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(source, target)
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A text that begins with the path of a mount, with the path under which it is really found.
fn translate(text: &str, root: &Path, mounts: &[Mount]) -> String {
    let mounted = mounts
        .iter()
        .any(|mount| Path::new(text).starts_with(&mount.target));
    if mounted {
        below(root, Path::new(text)).to_string_lossy().into_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(security: &serde_json::Value, container: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"securityContext": security, "containers": [container]}
        }))
        .unwrap()
    }

    #[test]
    fn a_container_is_whom_it_asks_to_be() {
        let id = |security: serde_json::Value, own: serde_json::Value| {
            let pod = pod(&security, &json!({"name": "c", "securityContext": own}));
            identity(&pod, &pod.spec.as_ref().unwrap().containers[0], (0, 0))
        };
        assert_eq!(id(json!({}), json!({})), Ok((0, 0)));
        assert_eq!(
            id(json!({"runAsUser": 7, "runAsGroup": 8}), json!({})),
            Ok((7, 8))
        );
        assert_eq!(id(json!({"runAsUser": 7}), json!({"runAsUser": 9})), Ok((9, 0)));
        assert_eq!(id(json!({"runAsNonRoot": true}), json!({})), Ok((NOBODY_ELSE, 0)));
        assert_eq!(
            id(json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false})),
            Ok((0, 0))
        );
        assert_eq!(
            id(json!({"runAsNonRoot": true, "runAsUser": 0}), json!({})),
            Err(ConfigError::RootNotAllowed)
        );
    }

    #[test]
    fn mounts_are_ordered_and_stay_in_their_volume() {
        let places = Places::from([
            (
                "v".to_owned(),
                Place {
                    path: PathBuf::from("/v"),
                    read_only: false,
                    claim: None,
                },
            ),
            (
                "m".to_owned(),
                Place {
                    path: PathBuf::from("/m"),
                    read_only: true,
                    claim: None,
                },
            ),
        ]);
        let env = BTreeMap::from([("N".to_owned(), "n".to_owned())]);
        let mounts = |list: serde_json::Value| {
            let container = serde_json::from_value(json!({"name": "c", "volumeMounts": list})).unwrap();
            volume_mounts(&container, &places, &env)
        };
        let found = mounts(json!([
            {"name": "m", "mountPath": "/w/deep", "subPath": "key"},
            {"name": "v", "mountPath": "/w", "subPathExpr": "a/$(N)", "readOnly": true},
            {"name": "v", "mountPath": "rel"}
        ]))
        .unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|mount| {
                (
                    mount.target.to_str().unwrap(),
                    mount.sub_path.as_deref(),
                    mount.read_only,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("/rel", None, false),
                ("/w", Some(Path::new("a/n")), true),
                ("/w/deep", Some(Path::new("key")), true)
            ]
        );
        for (name, sub_path) in [("none", ""), ("v", "../x"), ("v", "/abs")] {
            assert!(mounts(json!([{"name": name, "mountPath": "/x", "subPath": sub_path}])).is_err());
        }
    }

    #[test]
    fn links_stand_for_mounts_and_replace_those_of_an_earlier_pod() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["volume", "tmp", "scratch", "root"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in ["old", "new"] {
            fs::write(path(name), name).unwrap();
        }
        symlink(path("old"), path("volume/run.json")).unwrap();
        let mounts = [
            mount(path("old"), PathBuf::from("/tmp/tool"), true),
            mount(path("tmp"), PathBuf::from("/tmp"), false),
            mount(path("scratch"), PathBuf::from("/tmp"), false),
            mount(path("volume"), PathBuf::from("/w"), false),
            mount(path("new"), PathBuf::from("/w/run.json"), true),
        ];

        link_mounts(&path("root"), &mounts).unwrap();

        assert_eq!(
            fs::read_to_string(path("root/w/run.json")).unwrap(),
            "new",
            "not that of an earlier pod"
        );
        assert_eq!(
            fs::read_link(path("root/tmp")).unwrap(),
            path("scratch"),
            "the pod's own mount wins"
        );
        fs::remove_file(path("volume/run.json")).unwrap();
        fs::write(path("volume/run.json"), "content").unwrap();
        let error = link_mounts(&path("root"), &mounts).unwrap_err();
        assert!(error.to_string().contains("run.json is in the volume"), "{error}");
        assert_eq!(fs::read_to_string(path("volume/run.json")).unwrap(), "content");
    }

    #[test]
    fn paths_below_a_mount_are_translated_where_there_are_no_mounts() {
        let mounts = [mount(PathBuf::new(), PathBuf::from("/volume"), false)];
        let root = Path::new("/r");
        for (text, expected) in [
            ("/volume", "/r/volume"),
            ("/volume/a", "/r/volume/a"),
            ("/volumes", "/volumes"),
            ("--at=/volume", "--at=/volume"),
            ("", ""),
        ] {
            assert_eq!(translate(text, root, &mounts), expected, "{text}");
        }
    }
}
