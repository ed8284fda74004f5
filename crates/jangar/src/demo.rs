//! `jangar demo`.
pub(crate) async fn run() -> anyhow::Result<()> {
    Ok(())
}
