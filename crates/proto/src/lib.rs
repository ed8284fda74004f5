//! The contract of gRPC between agentctl and the control plane.
