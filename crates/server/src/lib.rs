//! The control plane: HTTP and gRPC for people and programs.
