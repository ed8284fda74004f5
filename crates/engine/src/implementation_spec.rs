//! implementation_spec
