//! The conditions of kinds that are only checked: valid, wrong, or waiting for what they refer to.

use jangar_api::{
    condition::{CommonStatus, ConditionStatus, ConditionType},
    reason::Reason,
};
use jiff::Timestamp;

use crate::{
    conditions::{Conditions, Health},
    decision::Rejection,
};

/// What the conditions say after a check. `InvalidSpec` is taken back when the object was mended.
pub(crate) fn report(
    before: &CommonStatus,
    generation: Option<i64>,
    checked: Result<(), Rejection>,
    now: Timestamp,
) -> CommonStatus {
    report_as(&Reason::ValidSpec, before, generation, checked, now)
}

/// The same, for kinds that have another word for what is well.
pub(crate) fn report_as(
    well: &Reason,
    before: &CommonStatus,
    generation: Option<i64>,
    checked: Result<(), Rejection>,
    now: Timestamp,
) -> CommonStatus {
    let mut conditions = Conditions::of(before, generation, now);
    match checked {
        Ok(()) => {
            conditions.clear(ConditionType::InvalidSpec, well.clone(), "");
            conditions.stand(Health::Ready, well, "");
        }
        Err(Rejection { reason, message }) => {
            conditions.set(
                ConditionType::InvalidSpec,
                ConditionStatus::True,
                reason.clone(),
                message.clone(),
            );
            conditions.stand(Health::Degraded, &reason, &message);
        }
    }
    conditions.into_status(before)
}
