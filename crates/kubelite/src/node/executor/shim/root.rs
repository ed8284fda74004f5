//! What a container sees instead of the machine: a small file system of its own in memory, into which the machine's
//! directories are mounted read-only, hidden directories are covered by empty ones, and volumes are mounted.
//!
//! Where a volume's mount point does not exist on the machine, the directories above it are rebuilt entry by entry, because
//! nothing can be created in the machine's own. Each entry costs a mount and its protection, so only those are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
        mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree, unmount,
    },
    process::{
        DumpableBehavior, Signal, pivot_root, set_dumpable_behavior, set_parent_process_death_signal, umask,
    },
    thread::{UnshareFlags, set_no_new_privs},
};

use super::{Doing, ShimError};
use crate::node::executor::run::{Files, Mount, Sandbox};

/// Directories that are never the machine's.
const PRIVATE: [&str; 4] = ["/dev", "/proc", "/run", "/tmp"];
/// On most machines links to the ones above.
const PRIVATE_TOO: [&str; 2] = ["/var/run", "/var/tmp"];
/// Devices that every program may expect and none can harm anything with.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// How many entries of the machine's directories are mounted one by one: more than any root or `/etc` holds, and few enough
/// that a container starts within a moment.
const ENTRIES_MAX: usize = 10_000;

/// Leaves namespaces of the parent.
pub(super) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    #[expect(
        deprecated,
        reason = "it is deprecated because unsharing the table of descriptors confuses threads; that flag is not used here"
    )]
    rustix::thread::unshare(flags)
}

/// Says who this process is in the user namespace that it has just made.
pub(super) fn map_ids(uid: u32, outer_uid: u32, gid: u32, outer_gid: u32) -> Result<(), ShimError> {
    let write = |name: &str, text: String| {
        OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/{name}"))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .doing(|| format!("writing {name} of the user namespace"))
    };
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{gid} {outer_gid} 1\n"))?;
    write("uid_map", format!("{uid} {outer_uid} 1\n"))
}

/// Puts this process into the sandbox for good.
pub(super) fn enter(files: &Files, sandbox: &Sandbox, working_dir: Option<&Path>) -> Result<(), ShimError> {
    umask(Mode::from_raw_mode(0o022));
    unshare(UnshareFlags::NEWNS).doing(|| "making a mount namespace".to_owned())?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing(|| "making mounts private".to_owned())?;
    let sources: Vec<(OwnedFd, &Mount)> = sandbox
        .mounts
        .iter()
        .map(|mount| Ok((source(mount)?, mount)))
        .collect::<Result<_, ShimError>>()?;

    // It is hidden from the container anyway, and what is needed of it is open.
    let root = &files.dir;
    new_root(root)?;
    let special = Special::of(sandbox, working_dir);
    let mut entries_left = ENTRIES_MAX;
    populate(root, Path::new("/"), &special, &mut entries_left)?;
    for name in PRIVATE {
        make_dir(&inside(root, Path::new(name)))?;
    }
    let proc = inside(root, Path::new("/proc"));
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &proc, "proc", safe, None).doing(|| "mounting a /proc of its own".to_owned())?;
    devices(root)?;
    tmpfs(&inside(root, Path::new("/run")), c"mode=755")?;
    for path in special.covered() {
        tmpfs(&inside(root, path), c"mode=755")?;
    }
    change_root(root)?;
    make_read_only(&special)?;

    // What covers a hidden directory can be protected only once the volumes in it have their mount points.
    let mut attached: BTreeMap<PathBuf, bool> =
        special.covered().map(|path| (path.to_owned(), true)).collect();
    for (source, mount) in sources {
        attached.insert(attach(&source, mount)?, mount.read_only);
    }
    protect(&attached)?;
    if let Some(directory) = working_dir {
        // Container runtimes make it. If it cannot be made, entering it says so.
        let _ = fs::create_dir_all(directory);
    }
    remount_read_only(Path::new("/"), MountFlags::NOSUID | MountFlags::NODEV)
        .doing(|| "making the root read-only".to_owned())?;
    give_up_power(sandbox)
}

/// From here on the process is an ordinary one: it owns neither its mounts nor its PID namespace, and cannot gain anything by
/// starting another program.
fn give_up_power(sandbox: &Sandbox) -> Result<(), ShimError> {
    unshare(UnshareFlags::NEWUSER).doing(|| "making the container's user namespace".to_owned())?;
    map_ids(sandbox.uid, 0, sandbox.gid, 0)?;
    set_no_new_privs(true).doing(|| "giving up new privileges".to_owned())?;
    // The container's processes are the same user in the same namespace as this one, which has a way out of the sandbox: its
    // current directory. Not dumpable, it can be neither traced nor looked into by them.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .doing(|| "closing this process to others".to_owned())?;
    // Another user namespace may have untied it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .doing(|| "tying this process to its parent".to_owned())
}

fn new_root(root: &Path) -> Result<(), ShimError> {
    tmpfs(root, c"mode=755")?;
    // Otherwise mounting the directory above it would bring along a copy of what has been put together so far.
    mount_change(root, MountPropagationFlags::UNBINDABLE).doing(|| "making the root private".to_owned())
}

fn tmpfs(at: &Path, options: &std::ffi::CStr) -> Result<(), ShimError> {
    make_dir(at)?;
    mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    )
    .doing(|| format!("mounting an empty file system at {}", at.display()))
}

fn make_dir(path: &Path) -> Result<(), ShimError> {
    fs::create_dir_all(path).doing(|| format!("making {}", path.display()))
}

/// The same path below another root.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The paths at which a container does not see what the machine has there.
#[derive(Debug)]
struct Special {
    /// Hidden directories, and mount points that do not exist. None lies below another.
    paths: BTreeSet<PathBuf>,
    /// Those of them that the machine does not have, for which the directories above are rebuilt.
    missing: BTreeSet<PathBuf>,
    /// Where volumes are mounted, which hides what is below them.
    points: BTreeSet<PathBuf>,
}

impl Special {
    fn of(sandbox: &Sandbox, working_dir: Option<&Path>) -> Self {
        let mut paths: BTreeSet<PathBuf> = PRIVATE.iter().map(PathBuf::from).collect();
        paths.extend(PRIVATE_TOO.iter().map(|path| real(Path::new(path))));
        paths.extend(sandbox.hidden.iter().map(|path| real(path)));
        let points: BTreeSet<PathBuf> = sandbox.mounts.iter().map(|mount| real(&mount.target)).collect();
        let entered = working_dir.map(real);
        let missing = points.iter().chain(&entered).filter(|point| !point.exists());
        paths.extend(missing.cloned());
        let is_outermost = |path: &PathBuf| !path.ancestors().skip(1).any(|above| paths.contains(above));
        let paths: BTreeSet<PathBuf> = paths.iter().filter(|path| is_outermost(path)).cloned().collect();
        let missing = paths.iter().filter(|path| !path.is_dir()).cloned().collect();
        Self {
            paths,
            missing,
            points,
        }
    }

    /// Whether the machine's directory cannot be mounted whole, because something has to be created in or below it.
    fn is_rebuilt(&self, directory: &Path) -> bool {
        directory == Path::new("/") || has_below(&self.missing, directory)
    }

    /// The hidden directories in directories that are mounted whole, unless a volume covers them.
    fn covered(&self) -> impl Iterator<Item = &Path> {
        let is_visible = |path: &&Path| !path.parent().is_some_and(|parent| self.is_rebuilt(parent));
        let open = self.paths.difference(&self.points);
        open.map(PathBuf::as_path).filter(is_visible)
    }
}

/// Resolves the links in as much of the path as exists.
fn real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            // Joining nothing would add a slash at the end.
            return if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            };
        }
    }
    path.to_owned()
}

/// Mounts or copies every entry of a directory of the machine, and goes into those that have to be rebuilt as well.
fn populate(root: &Path, directory: &Path, special: &Special, left: &mut usize) -> Result<(), ShimError> {
    let Ok(entries) = fs::read_dir(directory) else {
        // What we may not read the container may not read either.
        return Ok(());
    };
    for entry in entries.flatten() {
        let (path, target) = (entry.path(), inside(root, &entry.path()));
        let Ok(kind) = entry.file_type() else { continue };
        *left = left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("too many entries"))
            .doing(|| format!("mounting the entries of {} one by one", directory.display()))?;
        if kind.is_symlink() && !special.paths.contains(&path) {
            let link = fs::read_link(&path).doing(|| format!("reading {}", path.display()))?;
            symlink(link, &target).doing(|| format!("linking {}", path.display()))?;
        } else if special.paths.contains(&path) {
            // Both a hidden directory and a mount point begin as an empty directory.
            make_dir(&target)?;
        } else if kind.is_dir() && special.is_rebuilt(&path) {
            make_dir(&target)?;
            populate(root, &path, special, left)?;
        } else if kind.is_dir() {
            make_dir(&target)?;
            bind(&path, &target)?;
        } else if kind.is_file() {
            File::create(&target).doing(|| format!("making {}", target.display()))?;
            bind(&path, &target)?;
        }
    }
    Ok(())
}

fn has_below(paths: &BTreeSet<PathBuf>, path: &Path) -> bool {
    // Paths are ordered by component, so what is below one follows it directly.
    paths
        .range(path.to_owned()..)
        .next()
        .is_some_and(|next| next.starts_with(path))
}

fn bind(path: &Path, target: &Path) -> Result<(), ShimError> {
    match mount_bind_recursive(path, target) {
        // It went away or may not be entered: empty is as much as the container could see of it.
        Err(Errno::ACCESS | Errno::NOENT) => Ok(()),
        result => result.doing(|| format!("mounting {}", path.display())),
    }
}

/// Makes everything of the machine read-only. The root has changed, so the table of mounts holds little else.
fn make_read_only(special: &Special) -> Result<(), ShimError> {
    for (point, flags) in mounts()? {
        let own = point == Path::new("/") || point.ancestors().any(|path| special.paths.contains(path));
        if !own {
            protect_one(&point, flags)?;
        }
    }
    Ok(())
}

/// Makes the mounts read-only that shall be, with whatever is mounted in what they show. The table of mounts is dear to read,
/// so this looks at it once for all of them.
fn protect(attached: &BTreeMap<PathBuf, bool>) -> Result<(), ShimError> {
    if !attached.values().any(|read_only| *read_only) {
        return Ok(());
    }
    for (point, flags) in mounts()? {
        if is_protected(attached, &point) {
            protect_one(&point, flags)?;
        }
    }
    Ok(())
}

/// Whether what is mounted at `point` belongs to a mount that shall be read-only: the innermost one decides.
fn is_protected(attached: &BTreeMap<PathBuf, bool>, point: &Path) -> bool {
    point
        .ancestors()
        .find_map(|path| attached.get(path).copied())
        .unwrap_or(false)
}

fn protect_one(point: &Path, flags: MountFlags) -> Result<(), ShimError> {
    match remount_read_only(point, flags) {
        Ok(()) | Err(Errno::ACCESS | Errno::NOENT) => Ok(()),
        Err(error) => Err(error).doing(|| format!("making {} read-only", point.display())),
    }
}

/// Every place where something is mounted, with the options of the newest mount there, which is the one that is seen.
fn mounts() -> Result<BTreeMap<PathBuf, MountFlags>, ShimError> {
    let table = fs::read_to_string("/proc/self/mountinfo").doing(|| "reading the mounts".to_owned())?;
    Ok(table.lines().filter_map(mount_in).collect())
}

/// The options that a mount already has may not be dropped by somebody less privileged than who set them.
fn remount_read_only(point: &Path, flags: MountFlags) -> Result<(), Errno> {
    mount_remount(point, MountFlags::BIND | MountFlags::RDONLY | flags, "")
}

/// The mount point and options in a line of `mountinfo`.
fn mount_in(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let point = unescape(fields.next()?);
    let mut flags = MountFlags::empty();
    for option in fields.next()?.split(',') {
        flags |= match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            _ => MountFlags::empty(),
        };
    }
    Some((PathBuf::from(point), flags))
}

/// `mountinfo` writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                out.push(char::from(byte));
                rest = after.get(3..).unwrap_or("");
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn devices(root: &Path) -> Result<(), ShimError> {
    let dev = inside(root, Path::new("/dev"));
    for name in DEVICES {
        let target = dev.join(name);
        File::create(&target).doing(|| format!("making {}", target.display()))?;
        bind(&Path::new("/dev").join(name), &target)?;
    }
    for (name, to) in DEVICE_LINKS {
        symlink(to, dev.join(name)).doing(|| format!("linking /dev/{name}"))?;
    }
    tmpfs(&dev.join("shm"), c"mode=1777")?;
    let pts = dev.join("pts");
    make_dir(&pts)?;
    // Without it there are no terminals inside, which few programs miss.
    let options = c"newinstance,ptmxmode=0666,mode=620";
    let _ = mount(
        "devpts",
        &pts,
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        options,
    );
    Ok(())
}

/// Makes `root` the root of the mount namespace and lets go of everything else.
fn change_root(root: &Path) -> Result<(), ShimError> {
    let changing = || "changing the root".to_owned();
    std::env::set_current_dir(root).doing(changing)?;
    // The old root ends up on top of the new one, from where it is taken away.
    pivot_root(".", ".").doing(changing)?;
    unmount(".", UnmountFlags::DETACH).doing(|| "letting go of the machine's root".to_owned())?;
    std::env::set_current_dir("/").doing(changing)
}

/// A copy of the mount that a volume comes from, not yet mounted anywhere.
fn source(mount: &Mount) -> Result<OwnedFd, ShimError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let opening = || format!("opening what is mounted at {}", mount.target.display());
    let Some(sub_path) = &mount.sub_path else {
        return open_tree(CWD, &mount.source, flags).doing(opening);
    };
    let below = open_below(&mount.source, sub_path)
        .doing(|| format!("opening subPath {} of a volume", sub_path.display()))?;
    open_tree(&below, "", flags | OpenTreeFlags::AT_EMPTY_PATH).doing(opening)
}

/// Opens a path below a directory without following links, and makes what is missing of it.
fn open_below(directory: &Path, path: &Path) -> Result<OwnedFd, io::Error> {
    let mut at = openat(
        CWD,
        directory,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::other("it leaves the volume"));
            }
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = match openat(&at, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                openat(&at, name, flags, Mode::empty())?
            }
            result => result?,
        };
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode);
        if kind == rustix::fs::FileType::Symlink {
            return Err(io::Error::other("a part of it is a symbolic link"));
        }
        at = next;
    }
    Ok(at)
}

/// Mounts a source at its place, and says where that really is. The root has changed, so no link can lead out of it.
fn attach(source: &OwnedFd, mount: &Mount) -> Result<PathBuf, ShimError> {
    let mounting = || format!("mounting at {}", mount.target.display());
    let stat = rustix::fs::statat(source, "", AtFlags::EMPTY_PATH).doing(mounting)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory {
        fs::create_dir_all(&mount.target).doing(mounting)?;
    } else if !mount.target.exists() {
        if let Some(parent) = mount.target.parent() {
            fs::create_dir_all(parent).doing(mounting)?;
        }
        File::create(&mount.target).doing(mounting)?;
    }
    move_mount(
        source,
        "",
        CWD,
        &mount.target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
    .doing(mounting)?;
    mount.target.canonicalize().doing(mounting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_is_read_with_its_escapes() {
        let line = r"36 35 98:0 / /mnt/a\040b\134c rw,nosuid,relatime shared:1 - ext4 /dev/sda rw";
        let (point, flags) = mount_in(line).unwrap();
        assert_eq!(point, Path::new(r"/mnt/a b\c"));
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::RELATIME);
        assert_eq!(mount_in("36 35"), None);
    }

    #[test]
    fn the_innermost_mount_decides_whether_a_place_is_read_only() {
        let attached = [("/a", true), ("/a/b", false), ("/a/b/c", true), ("/d", false)];
        let attached = BTreeMap::from(attached.map(|(path, read_only)| (PathBuf::from(path), read_only)));
        for (point, expected) in [
            ("/a", true),
            ("/a/x", true),
            ("/a/b", false),
            ("/a/b/x", false),
            ("/a/b/c/x", true),
            ("/d", false),
            ("/e", false),
            ("/", false),
        ] {
            assert_eq!(is_protected(&attached, Path::new(point)), expected, "{point}");
        }
    }

    #[test]
    fn directories_above_a_path_are_known() {
        let below = BTreeSet::from([PathBuf::from("/a/b-c"), PathBuf::from("/a/b/c")]);
        for (path, expected) in [
            ("/a", true),
            ("/a/b", true),
            ("/a/b-c", true),
            ("/a/b-", false),
            ("/b", false),
        ] {
            assert_eq!(has_below(&below, Path::new(path)), expected, "{path}");
        }
    }

    /// What is special if these directories are hidden, and volumes are mounted at these points.
    fn special(hidden: &[&Path], points: &[&str]) -> Special {
        let mount = |target: &&str| Mount {
            source: PathBuf::new(),
            sub_path: None,
            target: PathBuf::from(target),
            read_only: false,
        };
        let sandbox = Sandbox {
            hidden: hidden.iter().map(|path| path.to_path_buf()).collect(),
            mounts: points.iter().map(mount).collect(),
            uid: 0,
            gid: 0,
        };
        Special::of(&sandbox, Some(Path::new("/tmp/w")))
    }

    #[test]
    fn only_directories_above_missing_paths_are_rebuilt() {
        let points = [
            "/usr",
            "/tmp/x",
            "/hidden-for-a-test/y",
            "/usr/missing-for-a-test/z",
        ];
        let special = special(&[Path::new("/hidden-for-a-test")], &points);

        for (path, rebuilt) in [("/", true), ("/usr", true), ("/usr/bin", false), ("/etc", false)] {
            assert_eq!(special.is_rebuilt(Path::new(path)), rebuilt, "{path}");
        }
        let missing = ["/hidden-for-a-test", "/usr/missing-for-a-test/z"];
        assert!(
            missing
                .iter()
                .all(|path| special.missing.contains(Path::new(path)))
        );
        assert!(
            points[1..3]
                .iter()
                .all(|point| !special.paths.contains(Path::new(point)))
        );
    }

    #[test]
    fn a_hidden_directory_is_covered_where_the_one_above_is_mounted_whole() {
        // Not in the private /tmp.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let hidden = directory.path().canonicalize().unwrap().join("hidden");
        fs::create_dir_all(hidden.join("deeper")).unwrap();
        let hidden = [hidden.as_path(), &hidden.join("deeper")];

        let whole = special(&hidden, &[]);
        assert_eq!(
            whole
                .covered()
                .filter(|path| hidden.contains(path))
                .collect::<Vec<_>>(),
            [hidden[0]]
        );

        let beside = hidden[0].with_file_name("missing");
        let mounted = special(&hidden, &[hidden[0].to_str().unwrap()]);
        assert!(
            mounted.covered().all(|path| !hidden.contains(&path)),
            "a volume hides it as well"
        );

        let rebuilt = special(&hidden, &[beside.to_str().unwrap()]);
        assert!(rebuilt.covered().all(|path| !hidden.contains(&path)));
        assert!(rebuilt.paths.contains(hidden[0]), "it is left empty instead");
    }

    #[test]
    fn a_link_in_a_volume_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        symlink("/", directory.path().join("out")).unwrap();
        assert!(open_below(directory.path(), Path::new("out/etc")).is_err());
        assert!(open_below(directory.path(), Path::new("../x")).is_err());
        open_below(directory.path(), Path::new("deep/er")).unwrap();
        assert!(
            directory.path().join("deep/er").is_dir(),
            "what is missing is made"
        );
    }
}
