//! Names the build, so that `jangar` knows whether the `jangar-pod` beside it belongs to it.
//!
//! The name is a digest of what `jangar-pod` is made of. It guards against mistakes, such as one of two files replaced by a
//! newer one, and not against anybody.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
};

/// Relative to this package: the programs, the crates that `jangar-pod` consists of, and the versions of all others.
const SOURCES: [&str; 4] = ["src/bin", "../kubelite/src", "../runner/src", "../../Cargo.lock"];

fn main() -> io::Result<()> {
    let mut digest = DefaultHasher::new();
    env::var("PROFILE").unwrap_or_default().hash(&mut digest);
    for source in SOURCES {
        // For a directory this means everything in it.
        println!("cargo::rerun-if-changed={source}");
        add(Path::new(source), &mut digest)?;
    }
    println!("cargo::rustc-env=JANGAR_BUILD={:016x}", digest.finish());
    Ok(())
}

fn add(path: &Path, digest: &mut DefaultHasher) -> io::Result<()> {
    if !path.is_dir() {
        path.hash(digest);
        fs::read(path)?.hash(digest);
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    // In an order that does not depend on the file system.
    entries.sort();
    entries.iter().try_for_each(|entry| add(entry, digest))
}
