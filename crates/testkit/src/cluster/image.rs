//! The image of Jangar on the real node. There is no registry to pull from: an archive is imported.

use std::path::Path;

use super::{
    Bench, BenchError,
    parts::{ScriptError, script},
};

/// The name of the image that `make cluster-image` builds from this checkout.
pub const JANGAR_IMAGE: &str = "jangar.test/jangar:dev";

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/image/jangar-dev.tar");

/// Why the real node cannot have the image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("the image of Jangar is not built: make cluster-image")]
    NotBuilt,
    #[error("the image of Jangar was not imported: {0}")]
    Refused(#[from] ScriptError),
}

impl Bench {
    /// Gives [`JANGAR_IMAGE`] to the real node. A node that has it takes it again, which is quick.
    pub async fn import_jangar(&self) -> Result<(), ImageError> {
        self.real_node()?;
        if !Path::new(ARCHIVE).exists() {
            return Err(ImageError::NotBuilt);
        }
        Ok(script("import", Path::new(ARCHIVE)).await?)
    }
}
