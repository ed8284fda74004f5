//! Compiled CEL rules.

/// The compiled rules of one schema.
#[derive(Debug, Default)]
pub struct Rules;
