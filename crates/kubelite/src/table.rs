//! Server-side tables.

/// One printer column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    pub name: String,
    pub type_: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    /// The Kubernetes dialect of JSONPath, as the definition gives it (`.status.phase`).
    pub json_path: String,
}
