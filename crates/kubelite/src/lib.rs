//! kubelite: a Kubernetes API server small enough to live inside another program.
//!
//! It learns every kind but a few built-in ones from CustomResourceDefinitions, speaks the wire protocol that kubectl and
//! kube-rs speak, and keeps its objects on disk or in memory. It knows nothing of the program around it.
//!
//! It may depend on HTTP, TLS and storage libraries, never on another crate of this workspace.
//!
//! Start reading at `resource` (what is served), then `store` (where objects live and how watches follow them), then
//! `server` (how a request becomes a write), then `node` (what makes Jobs run).

pub mod apply;
pub mod body;
pub mod builtin;
pub mod clock;
#[doc(hidden)]
pub mod defects;
pub mod discovery;
pub mod error;
pub mod field;
pub mod jsonpath;
pub mod kubeconfig;
pub mod names;
pub mod negotiate;
pub mod node;
pub mod openapi;
pub mod patch;
mod private_file;
pub mod request;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod server;
pub mod store;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
