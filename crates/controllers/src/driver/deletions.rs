//! The deletions of one term: the budget that the engine keeps, asked by the clock that only counts forward.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jangar_engine::{
    retention::{Budget, Turn},
    settings::Settings,
};
use tokio::time::Instant;

use crate::metrics::{DeletionResult, Metrics};

/// Who may be deleted, and when.
#[derive(Debug)]
pub(crate) struct Deletions {
    budget: Mutex<Budget>,
    begin: Instant,
}

impl Deletions {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            budget: Mutex::new(Budget::new(settings.runs.deletions_per_minute)),
            begin: Instant::now(),
        }
    }

    /// Asks for one deletion: how long it has to wait, or not at all.
    pub(crate) fn ask(&self, metrics: &Metrics) -> Option<Duration> {
        let now = self.begin.elapsed();
        // Every change of a budget is complete before anything can fail.
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = budget.ask(now);
        let waiting = budget.waiting(now);
        drop(budget);
        match turn {
            Turn::Now => {
                metrics.run_deletion(DeletionResult::Begun, waiting);
                None
            }
            Turn::In(wait) => {
                metrics.run_deletion(DeletionResult::PutOff, waiting);
                Some(wait)
            }
        }
    }
}
