//! Lists of conditions: how one is changed, and the three that every kind has.

use jangar_api::{
    condition::{CommonStatus, Condition, ConditionStatus, ConditionType},
    reason::Reason,
    values::{Int64, Timestamp},
};

/// Where an object stands as a whole: what `Ready`, `Progressing` and `Degraded` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Checked, in effect, or ended with success.
    Ready,
    /// Under way.
    Progressing,
    /// Wrong, failed or cancelled.
    Degraded,
}

/// The most characters of a message: the API server refuses longer ones, and with them everything else in the status. Ours
/// grow only by the words of others.
const MESSAGE_MAX: usize = 32_768;

/// The conditions of one object while its next status is made.
#[derive(Clone, Debug)]
pub struct Conditions {
    list: Vec<Condition>,
    generation: Option<Int64>,
    now: Timestamp,
}

impl Conditions {
    /// Begins with what the status says already.
    pub fn of(status: &CommonStatus, generation: Option<i64>, now: jiff::Timestamp) -> Self {
        Self {
            list: status.conditions.clone(),
            generation: generation.map(Int64::from),
            now: Timestamp(now),
        }
    }

    /// What is said of one condition so far.
    pub fn get(&self, type_: &ConditionType) -> Option<&Condition> {
        self.list.iter().find(|known| known.type_ == *type_)
    }

    /// Says something about one condition. Its time changes only if what it says does.
    pub fn set(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.put(type_, status, reason, message.into(), Since::Words);
    }

    /// Says something about one condition whose time tells for how long it has held: other words for the same reason do not
    /// change it. Whoever waits for something gets no more time because the words about it changed.
    pub fn set_since(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: impl Into<String>,
    ) {
        self.put(type_, status, reason, message.into(), Since::Reason);
    }

    fn put(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        mut message: String,
        since: Since,
    ) {
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_MAX) {
            message.truncate(end);
        }
        let next = Condition {
            type_,
            status,
            reason,
            message,
            last_transition_time: Some(self.now),
            observed_generation: self.generation,
        };
        match self.list.iter_mut().find(|known| known.type_ == next.type_) {
            Some(known) if says_the_same(known, &next) => {}
            Some(known) if since == Since::Reason && holds_the_same(known, &next) => {
                let last_transition_time = known.last_transition_time.or(next.last_transition_time);
                *known = Condition {
                    last_transition_time,
                    ..next
                };
            }
            Some(known) => *known = next,
            None => self.list.push(next),
        }
    }

    /// Sets a condition to `False`, if it was ever heard of.
    pub fn clear(&mut self, type_: ConditionType, reason: Reason, message: &str) {
        if self.list.iter().any(|known| known.type_ == type_) {
            self.set(type_, ConditionStatus::False, reason, message);
        }
    }

    /// Sets `Ready`, `Progressing` and `Degraded`, which every kind has.
    pub fn stand(&mut self, standing: Health, reason: &Reason, message: &str) {
        for (type_, when) in [
            (ConditionType::Ready, Health::Ready),
            (ConditionType::Progressing, Health::Progressing),
            (ConditionType::Degraded, Health::Degraded),
        ] {
            // What does not hold needs no words: they stand beside what does.
            let (status, message) = if standing == when {
                (ConditionStatus::True, message)
            } else {
                (ConditionStatus::False, "")
            };
            self.set(type_, status, reason.clone(), message);
        }
    }

    /// The part of the status that all kinds have, with these conditions.
    ///
    /// `updatedAt` stays what it was, because a time by itself is no change: [`touched`] sets it when there is one.
    pub fn into_status(self, before: &CommonStatus) -> CommonStatus {
        CommonStatus {
            conditions: self.list,
            observed_generation: self.generation,
            updated_at: before.updated_at,
        }
    }
}

/// From when the time of a condition counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// From when it said so in these words.
    Words,
    /// From when it held for this reason.
    Reason,
}

/// Whether two conditions of the same type hold for the same reason.
fn holds_the_same(one: &Condition, other: &Condition) -> bool {
    one.status == other.status && one.reason == other.reason
}

/// Whether two conditions of the same type differ in more than their time.
pub(crate) fn says_the_same(one: &Condition, other: &Condition) -> bool {
    one.status == other.status && one.reason == other.reason && one.message == other.message
}

/// A status, if it differs from the one before; its `updatedAt` is then `now`.
pub fn touched<S: PartialEq>(
    before: &S,
    mut next: S,
    common: impl FnOnce(&mut S) -> &mut CommonStatus,
    now: jiff::Timestamp,
) -> Option<S> {
    if *before == next {
        return None;
    }
    common(&mut next).updated_at = Some(Timestamp(now));
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).expect("a time")
    }

    fn ready(second: i64, before: &CommonStatus, message: &str) -> CommonStatus {
        let mut conditions = Conditions::of(before, Some(1), at(second));
        conditions.stand(Health::Ready, &Reason::ValidSpec, message);
        conditions.into_status(before)
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let first = ready(1, &CommonStatus::default(), "");
        let again = ready(2, &first, "");
        assert_eq!(first, again);
        assert!(touched(&first, again, |status| status, at(2)).is_none());
    }

    #[test]
    fn a_change_carries_its_time_and_leaves_other_conditions_alone() {
        let foreign: Condition =
            serde_json::from_str(r#"{"type": "x.y/Z", "status": "True"}"#).expect("a condition");
        let before = CommonStatus {
            conditions: vec![foreign.clone()],
            ..CommonStatus::default()
        };
        let first = ready(1, &before, "");
        let second = ready(2, &first, "news");
        let changed = second.condition(&ConditionType::Ready).expect("set");
        assert_eq!(changed.last_transition_time, Some(Timestamp(at(2))));
        assert!(second.conditions.contains(&foreign));
        let touched = touched(&first, second, |status| status, at(2)).expect("it changed");
        assert_eq!(touched.updated_at, Some(Timestamp(at(2))));
    }

    #[test]
    fn a_wait_lasts_since_its_reason_whatever_its_words() {
        let blocked = |second: i64, before: &CommonStatus, reason: Reason, message: &str| {
            let mut conditions = Conditions::of(before, Some(1), at(second));
            conditions.set_since(ConditionType::Blocked, ConditionStatus::True, reason, message);
            conditions.into_status(before)
        };
        let first = blocked(
            1,
            &CommonStatus::default(),
            Reason::VcsAuthUnavailable,
            "no answer",
        );
        let second = blocked(2, &first, Reason::VcsAuthUnavailable, "503");
        let told = second.condition(&ConditionType::Blocked).expect("set");
        assert_eq!(
            (told.message.as_str(), told.last_transition_time),
            ("503", Some(Timestamp(at(1))))
        );
        let third = blocked(3, &second, Reason::MissingAgent, "503");
        let told = third.condition(&ConditionType::Blocked).expect("set");
        assert_eq!(told.last_transition_time, Some(Timestamp(at(3))));
    }

    #[test]
    fn one_of_three_stands() {
        let status = ready(1, &CommonStatus::default(), "");
        let true_ones: Vec<_> = status
            .conditions
            .iter()
            .filter(|condition| condition.status == ConditionStatus::True)
            .map(|condition| condition.type_.clone())
            .collect();
        assert_eq!(true_ones, [ConditionType::Ready]);
    }
}
