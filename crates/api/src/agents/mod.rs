//! The group `agents.proompteng.ai`: agents, what they are to do, and single runs of them.

pub mod agent;
pub mod agent_provider;
pub mod agent_run;
pub mod agent_run_status;
pub mod implementation_source;
pub mod implementation_spec;
pub mod memory;
pub mod version_control_provider;
pub mod workload;
