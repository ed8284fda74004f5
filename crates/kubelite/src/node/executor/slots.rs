//! How many pods run at once, and whose turn is next.
//!
//! A node may be given more pods than it runs at once (`Config::ahead`). Those stand in line here, so that the next one begins in the
//! moment in which nothing of another lives any more, and not when the API server, the scheduler and the watches have heard of that end.
//!
//! What people see through the API must not run ahead of that: whoever takes over a slot tells nothing of itself before the end of its
//! predecessor was told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot::{self, error::TryRecvError};

/// Resolves when the end of a predecessor was told, or nobody is left to tell it.
type Predecessor = oneshot::Receiver<()>;

/// All slots of a node. Who asks before [`Slots::open`] is called waits at least until then.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The slots that nobody has, each with those whose it was and whose end was not told yet.
    free: VecDeque<Vec<Predecessor>>,
    /// How many pods run beyond the slots there are. So many slots are not given away again.
    owed: usize,
    line: VecDeque<oneshot::Sender<Slot>>,
    is_open: bool,
}

/// The right to run a pod. Whoever drops it lets the next one begin.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    predecessors: Vec<Predecessor>,
}

/// The end of a pod that gave its slot away was not told yet. Dropping this says that it was.
#[derive(Debug)]
pub(crate) struct Untold {
    _until_dropped: oneshot::Sender<()>,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: std::iter::repeat_with(Vec::new).take(count).collect(),
            owed: 0,
            line: VecDeque::new(),
            is_open: false,
        })))
    }

    /// For a pod that runs already, whether there is room for it or not.
    pub(crate) fn occupy(&self) -> Slot {
        let mut state = self.state();
        let free = state.free.pop_front();
        state.owed += usize::from(free.is_none());
        Slot {
            slots: self.clone(),
            predecessors: free.unwrap_or_default(),
        }
    }

    /// Gets in line. Whoever drops the answer leaves it.
    pub(crate) fn ask(&self) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        self.state().line.push_back(sender);
        self.serve();
        receiver
    }

    /// From now on slots are given away: those that run already have theirs.
    pub(crate) fn open(&self) {
        self.state().is_open = true;
        self.serve();
    }

    /// From now on none is: the node is about to stop, and whoever drops a slot may leave its pod running.
    pub(crate) fn close(&self) {
        self.state().is_open = false;
    }

    /// Gives free slots to those in line.
    fn serve(&self) {
        loop {
            let next = self.state().next();
            let Some((waiting, predecessors)) = next else {
                return;
            };
            // One who left meanwhile gets nothing: the slot comes back, and it is the turn of the next.
            drop(waiting.send(Slot {
                slots: self.clone(),
                predecessors,
            }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change to it is complete before anything can fail.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<(oneshot::Sender<Slot>, Vec<Predecessor>)> {
        while self.line.front().is_some_and(oneshot::Sender::is_closed) {
            self.line.pop_front();
        }
        if !self.is_open || self.line.is_empty() {
            return None;
        }
        let predecessors = self.free.pop_front()?;
        Some((self.line.pop_front()?, predecessors))
    }
}

impl Slot {
    /// Waits until the ends of those who had the slot before were told. Until then nothing may be told of who has it now.
    pub(crate) async fn predecessors_told(&mut self) {
        while let Some(predecessor) = self.predecessors.last_mut() {
            // It says nothing but that it is over.
            let _ = predecessor.await;
            self.predecessors.pop();
        }
    }

    /// Lets the next one begin: nothing of the pod lives any more, although nobody was told.
    pub(crate) fn give_away(mut self) -> Untold {
        let (untold, told) = oneshot::channel();
        self.predecessors.push(told);
        Untold {
            _until_dropped: untold,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        if state.owed > 0 {
            state.owed -= 1;
            return;
        }
        let mut predecessors = std::mem::take(&mut self.predecessors);
        // What was told needs no place in a list that is handed on and on.
        predecessors.retain_mut(|told| told.try_recv() == Err(TryRecvError::Empty));
        state.free.push_back(predecessors);
        drop(state);
        self.slots.serve();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn given(answer: &mut oneshot::Receiver<Slot>) -> Option<Slot> {
        answer.try_recv().ok()
    }

    #[test]
    fn slots_are_given_in_the_order_of_asking_and_never_more_than_there_are() {
        let slots = Slots::new(2);
        slots.open();
        let mut asked: Vec<_> = (0..4).map(|_| slots.ask()).collect();
        let first = given(&mut asked[0]).unwrap();
        let _second = given(&mut asked[1]).unwrap();
        assert!(given(&mut asked[2]).is_none(), "both are taken");

        drop(first);

        let _third = given(&mut asked[2]).unwrap();
        assert!(given(&mut asked[3]).is_none(), "one was given back");
    }

    #[test]
    fn who_left_the_line_is_passed_over() {
        let slots = Slots::new(1);
        slots.open();
        let first = slots.occupy();
        let left = slots.ask();
        let mut next = slots.ask();
        drop(left);
        drop(first);
        assert!(given(&mut next).is_some());
    }

    #[test]
    fn a_slot_that_nobody_took_from_the_line_goes_to_the_next() {
        let slots = Slots::new(1);
        slots.open();
        let answered = slots.ask();
        let mut next = slots.ask();
        drop(answered);
        assert!(given(&mut next).is_some());
    }

    #[test]
    fn nobody_begins_before_those_that_run_already_have_theirs() {
        let slots = Slots::new(1);
        let mut new = slots.ask();
        let running = slots.occupy();
        let surplus = slots.occupy();
        slots.open();
        assert!(given(&mut new).is_none());
        drop(running);
        assert!(given(&mut new).is_none(), "there is still one for the slot");
        drop(surplus);
        assert!(given(&mut new).is_some());
    }

    #[test]
    fn who_takes_over_knows_when_the_end_of_its_predecessor_was_told() {
        let slots = Slots::new(1);
        slots.open();
        let mut next = slots.ask();
        let first = given(&mut next).unwrap();
        let mut next = slots.ask();
        let untold = first.give_away();
        let mut second = given(&mut next).unwrap();
        assert_eq!(second.predecessors_told().now_or_never(), None);
        drop(untold);
        assert_eq!(second.predecessors_told().now_or_never(), Some(()));
    }

    #[test]
    fn who_ended_before_its_predecessor_was_told_hands_that_on() {
        let slots = Slots::new(1);
        slots.open();
        let first = slots.occupy().give_away();
        let second = given(&mut slots.ask()).unwrap().give_away();
        let mut third = given(&mut slots.ask()).unwrap();
        drop(second);
        assert_eq!(third.predecessors_told().now_or_never(), None);
        drop(first);
        assert_eq!(third.predecessors_told().now_or_never(), Some(()));
    }

    #[test]
    fn what_comes_back_after_the_end_is_given_to_nobody() {
        let slots = Slots::new(1);
        slots.open();
        let running = slots.occupy();
        let mut next = slots.ask();
        slots.close();
        drop(running);
        assert!(given(&mut next).is_none());
    }

    #[test]
    fn who_comes_later_knows_it_as_well() {
        let slots = Slots::new(1);
        slots.open();
        let untold = slots.occupy().give_away();
        let mut second = given(&mut slots.ask()).unwrap();
        assert_eq!(second.predecessors_told().now_or_never(), None);
        drop(untold);
    }
}
