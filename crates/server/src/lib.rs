//! The control plane: HTTP and gRPC for people and programs.
//!
//! It decides nothing about runs: the controllers do. It reads objects from caches that watches keep filled ([`world`]), asks
//! Kubernetes who calls and what they may do ([`access`]), and writes with the caller's own token. [`plane`] has everything that
//! callers can do; [`http`] and [`grpc`] translate. Issues that forges deliver are taken in by `webhooks`. So any number of replicas can answer side by side, and none of them holds
//! anything that the others need.
//!
//! Start reading at [`plane::ControlPlane`], then at [`access::Gatekeeper`] and [`plane::submit`].

pub mod access;
pub mod audit;
pub mod grpc;
pub mod history;
pub mod http;
pub mod metrics;
pub mod plane;
pub mod refusal;
pub mod tls;
pub mod told;
mod webhooks;
pub mod world;
