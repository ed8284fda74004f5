//! A value that changes, and those who wait for it.
//!
//! tokio has a channel for that, which wakes its receivers in an order that it draws by chance. Here they are woken in the
//! order in which they began to wait, so that a simulation sees the same thing happen again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that changes, and those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// The value as it is now. The lock is held as long as the guard is: no waiting meanwhile.
    pub(crate) fn read(&self) -> MutexGuard<'_, T> {
        // Nobody panics while holding it with the value half changed.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and tells those who wait if `change` says that it did.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T) -> bool) {
        let changed = change(&mut self.read());
        if changed {
            self.changed.notify_waiters();
        }
    }

    /// Returns when the value is as it should be.
    pub(crate) async fn until(&self, condition: impl Fn(&T) -> bool) {
        loop {
            // It hears of every change from here on, so none is missed between the look and the wait.
            let changed = self.changed.notified();
            if condition(&self.read()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn those_who_wait_go_on_in_the_order_they_came() {
        let signal = Arc::new(Signal::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        for number in 0..32 {
            let (signal, order) = (Arc::clone(&signal), Arc::clone(&order));
            waiting.spawn(async move {
                signal.until(|value| *value == 2).await;
                order.lock().unwrap().push(number);
            });
            yield_now().await;
        }

        signal.change(|value| {
            *value = 2;
            true
        });
        waiting.join_all().await;

        assert_eq!(*order.lock().unwrap(), (0..32).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_value_that_is_already_right_is_not_waited_for() {
        Signal::new(2).until(|value| *value == 2).await;
    }
}
