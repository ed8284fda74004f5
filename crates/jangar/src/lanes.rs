//! Threads of their own for parts of one process, so that none of them waits behind the others.
//!
//! On a laptop everything is one process, and whatever is ready to run would stand in one line: a pod that could be started
//! behind a crowd of runs that are looked at, and both behind whoever reads lists. Each lane has its own threads, which the
//! kernel shares the processors between, by the weight that the lane has.

use std::{future::poll_fn, pin::pin, thread::available_parallelism};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

/// How much a lane counts where there are fewer processors than work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// As much as any other process of this user.
    Usual,
    /// Whoever asks can wait for those who work.
    Light,
}

/// How far a light lane gives way, in the kernel's scale, where 19 is the farthest.
#[cfg(target_os = "linux")]
const LIGHT: i32 = 10;

/// Threads of their own. What runs on them ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Lane(Option<Runtime>);

impl Lane {
    pub(crate) fn open(name: &str, weight: Weight) -> Result<Self> {
        let threads = available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .worker_threads(threads)
            .on_thread_start(move || take(weight))
            .enable_all()
            .build()
            .with_context(|| format!("failed to start the threads of the {name}"))?;
        Ok(Self(Some(runtime)))
    }

    /// Does something such that all tasks it starts, and all that it waits for, are of this lane.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _within = self.0.as_ref().map(Runtime::enter);
            work.as_mut().poll(context)
        })
        .await
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Waiting for threads is not allowed to whoever runs on one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// On Linux these calls are about the thread that makes them. It has the priority of the thread that started it, which may be
/// light already, or lighter.
#[cfg(target_os = "linux")]
fn take(weight: Weight) {
    use rustix::process::{getpriority_process, setpriority_process};

    let taken = match (weight, getpriority_process(None)) {
        (Weight::Light, Ok(present)) if present < LIGHT => setpriority_process(None, LIGHT),
        (Weight::Light | Weight::Usual, present) => present.map(drop),
    };
    if let Err(error) = taken {
        tracing::debug!(%error, "this thread keeps its priority");
    }
}

/// Elsewhere a priority is one of the whole process.
#[cfg(not(target_os = "linux"))]
fn take(_: Weight) {}
