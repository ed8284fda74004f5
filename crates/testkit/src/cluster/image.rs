//! The image of Jangar on the real node. There is no registry to pull from: an archive is imported.

use std::{io, path::Path};

use tokio::process::Command;

use super::{Bench, BenchError};

/// The name of the image that `make cluster-image` builds from this checkout.
pub const JANGAR_IMAGE: &str = "jangar.test/jangar:dev";

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/image/jangar-dev.tar");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cluster/bench.sh");

/// Why the real node cannot have the image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("the image of Jangar is not built: make cluster-image")]
    NotBuilt,
    #[error("bench.sh cannot be started: {0}")]
    Start(#[from] io::Error),
    #[error("the image of Jangar was not imported: {0}")]
    Refused(String),
}

impl Bench {
    /// Gives [`JANGAR_IMAGE`] to the real node. A node that has it takes it again, which is quick.
    pub async fn import_jangar(&self) -> Result<(), ImageError> {
        self.real_node()?;
        if !Path::new(ARCHIVE).exists() {
            return Err(ImageError::NotBuilt);
        }
        let output = Command::new(SCRIPT).args(["import", ARCHIVE]).output().await?;
        if output.status.success() {
            return Ok(());
        }
        Err(ImageError::Refused(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}
