//! agent_provider
