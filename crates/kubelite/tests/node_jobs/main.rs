//! Jobs on the node's controllers, on a paused clock. The test plays the kubelet: it says through the API what became of
//! the pods. The statuses were compared with those of a Kubernetes 1.35.8 that was led through the same steps.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

mod deletion;
mod life;
mod node;
mod scheduling;
mod support;
