//! Where the paths of the container are.
//!
//! In a container a path is where it says. A node that cannot keep containers apart from the machine has no mounts: it makes
//! a directory that stands for the root, with a link in it for every mount, and names it in a variable. Then everything that
//! the runner is told of paths is meant below that directory, and nothing is written anywhere else.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::environment::Environment;

const ROOT_VARIABLE: &str = "KUBELITE_ROOT";

/// The directory that stands for the root of the container, unless the root itself does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Root(Option<PathBuf>);

impl Root {
    pub(crate) fn of(environment: &Environment) -> Self {
        Self(environment.get(ROOT_VARIABLE).map(PathBuf::from))
    }

    /// Whether the root is a directory of the machine, in which the node has put all that a container gets.
    pub(crate) fn is_directory(&self) -> bool {
        self.0.is_some()
    }

    /// Where a file of the runner's own is: always below the root, whether something is mounted there or not.
    pub(crate) fn place(&self, path: &Path) -> PathBuf {
        match &self.0 {
            Some(root) if path.is_absolute() && !path.starts_with(root) => root.join(inside(path)),
            Some(_) | None => path.to_owned(),
        }
    }

    /// Where something is that may be the container's or the machine's: below the root if the container has it.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        match &self.0 {
            Some(root) if path.is_absolute() && has(root, &inside(path)) => self.place(path),
            Some(_) | None => path.to_owned(),
        }
    }

    /// A text that may be a path. One that holds a path among other things stays as it is, because nobody can tell.
    pub(crate) fn text(&self, text: &str) -> String {
        if self.is_directory() {
            self.resolve(Path::new(text)).to_string_lossy().into_owned()
        } else {
            text.to_owned()
        }
    }
}

/// The path seen from the root. As with a real root, there is nothing above it.
fn inside(path: &Path) -> PathBuf {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => {
                inside.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    inside
}

/// Whether the path is, or lies below, a mount or a file. Plain directories are only the way to those: that there is a `/dev`
/// for the termination message does not make `/dev/null` the container's.
fn has(root: &Path, inside: &Path) -> bool {
    let mut place = root.to_owned();
    for part in inside.components() {
        place.push(part);
        match fs::symlink_metadata(&place) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn linked() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("volume")).unwrap();
        fs::create_dir_all(path("root/dev")).unwrap();
        symlink(path("volume"), path("root/workspace")).unwrap();
        fs::write(path("root/dev/termination-log"), "").unwrap();
        let root = Root(Some(path("root")));
        (directory, root)
    }

    #[test]
    fn what_the_container_has_is_below_its_root_and_the_rest_is_the_machines() {
        let (directory, root) = linked();
        let below = |path: &str| directory.path().join("root").join(path).display().to_string();
        for (text, expected) in [
            ("/workspace", below("workspace")),
            ("/workspace/not/yet/there", below("workspace/not/yet/there")),
            ("/dev/termination-log", below("dev/termination-log")),
            ("/dev/null", "/dev/null".to_owned()),
            ("/dev", "/dev".to_owned()),
            ("/workspaces", "/workspaces".to_owned()),
            ("/bin/sh", "/bin/sh".to_owned()),
            ("cd /workspace", "cd /workspace".to_owned()),
            ("workspace", "workspace".to_owned()),
            ("", String::new()),
        ] {
            assert_eq!(root.text(text), expected, "{text}");
            assert_eq!(Root::default().text(text), text);
        }
        let placed = below("workspace/a");
        assert_eq!(root.text(&placed), placed, "it is there already");
    }

    #[test]
    fn files_of_the_runner_never_leave_the_root() {
        let (directory, root) = linked();
        let base = directory.path().join("root");
        for (path, expected) in [
            ("/workspace/x", "workspace/x"),
            ("/nowhere/x", "nowhere/x"),
            ("/workspace/../../../etc/x", "etc/x"),
        ] {
            assert_eq!(root.place(Path::new(path)), base.join(expected));
            assert_eq!(Root::default().place(Path::new(path)), Path::new(path));
        }
    }
}
