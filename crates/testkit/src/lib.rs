//! A world in a test tube: the controllers as they are shipped, an API server and a node around them, and every kind of bad
//! luck, all in one thread and on a clock that stands still until everybody waits.
//!
//! The same seed gives the same world: the order of tasks, the delays of the network, UIDs and generated names follow from
//! it. An hour passes in milliseconds, and a failure can be played again.
//!
//! Start reading at [`simulation`], which plays one simulation from its beginning to its end. It puts together a [`world`]
//! (kubelite with its Job controller), a simulated kubelet ([`node`]) that keeps a record of the work that really started,
//! an [`endpoint`] and a [`temporal`] server outside of the cluster, the [`faults`] between the controllers and the API, and
//! the [`check`]s that look at every change. A [`scenario`] says what people do; [`search`] goes through crashes at every write and through seeds.
//!
//! Three rooms beside it have to do with the real thing: [`cluster`] is the harness for tests on a real Kubernetes,
//! [`conformance`] holds kubelite to what that answers, and [`temporal_server`] is a real Temporal server.
//!
//! It is for tests only: nothing that is shipped may depend on it.

#![expect(
    clippy::expect_used,
    reason = "a simulation whose own stage breaks cannot go on, and says so with its seed"
)]

pub mod check;
pub mod clock;
pub mod cluster;
pub mod conformance;
pub mod endpoint;
pub mod faults;
pub mod forges;
pub mod history;
pub mod node;
pub mod program;
pub mod scenario;
pub mod search;
pub mod simulation;
pub mod temporal;
pub mod temporal_server;
pub mod trace;
pub mod world;
