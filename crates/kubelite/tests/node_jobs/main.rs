//! Jobs on the node's controllers, on a paused clock. The test plays the kubelet: it says through the API what became of
//! the pods. The statuses were compared with those of a Kubernetes 1.35.8 that was led through the same steps.

mod deletion;
mod life;
mod node;
mod scheduling;
mod support;
