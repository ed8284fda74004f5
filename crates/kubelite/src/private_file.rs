//! Files that hold secrets: written whole or not at all, and readable by nobody else.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Readable and writable by the owner only.
pub(crate) const PRIVATE: u32 = 0o600;
/// Readable by all, for certificates.
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces a file: a crash leaves the old content or the new, never a part of it. Missing directories are made, for the
/// owner only.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path names no file"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let temporary = directory.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = write_new(&temporary, content, mode)
        .and_then(|()| fs::rename(&temporary, path))
        // Only a synchronised directory keeps the new name through a power failure.
        .and_then(|()| File::open(directory)?.sync_all());
    if written.is_err() {
        // The error that matters is the one above.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file, so that its mode is right from its first byte on.
fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/secret");
        write(&path, b"one", PUBLIC).unwrap();
        write(&path, b"two", PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        let directory = path.parent().unwrap();
        assert_eq!(
            fs::metadata(directory).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(
            fs::read_dir(directory).unwrap().count(),
            1,
            "no temporary file stays"
        );
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), b"").unwrap();
        assert!(write(&path, b"x", PRIVATE).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write(Path::new("/"), b"x", PRIVATE).is_err());
    }
}
