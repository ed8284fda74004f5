//! The status of a job, which only ever moves forward. Most rules are asked only when what they are about has changed, so
//! that an old mistake does not stand in the way of a new truth.

use serde_json::Value;

use super::{
    super::look::{at, flag, list, number, text},
    errors::Errors,
    job::count_indexes,
};
use crate::field::FieldPath;

/// What the rules look at in one version of a job.
struct View<'a> {
    job: &'a Value,
}

impl<'a> View<'a> {
    fn is(&self, condition: &str) -> bool {
        list(self.job, "status.conditions")
            .iter()
            .any(|one| text(one, "type") == condition && text(one, "status") == "True")
    }

    fn finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        self.job.get("status")?.get(name).filter(|value| !value.is_null())
    }

    fn count(&self, name: &str) -> i64 {
        self.field(name).and_then(Value::as_i64).unwrap_or_default()
    }
}

pub(super) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = FieldPath::new("status");
    let (now, was) = (View { job: new }, View { job: old });
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(path.child(field), number(new, &format!("status.{field}")));
    }
    conditions(errors, &now, &was, &path.child("conditions"));
    times(errors, &now, &was, &path);
    counters(errors, &now, &was, &path);
    indexes(errors, &now, &was, &path);
}

fn conditions(errors: &mut Errors, now: &View<'_>, was: &View<'_>, path: &FieldPath) {
    let changed = |condition: &str| now.is(condition) != was.is(condition);
    let mut rule = |broken: bool, detail: &str| {
        if broken {
            errors.inconsistent(path.clone(), detail);
        }
    };
    rule(
        (changed("Complete") || changed("Failed")) && now.is("Complete") && now.is("Failed"),
        "cannot set Complete=True and Failed=true conditions",
    );
    rule(
        (changed("Complete") || changed("FailureTarget")) && now.is("Complete") && now.is("FailureTarget"),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    rule(
        changed("Failed") && now.is("Failed") && !now.is("FailureTarget"),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    rule(
        (changed("Complete") || changed("SuccessCriteriaMet"))
            && now.is("Complete")
            && !now.is("SuccessCriteriaMet"),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    rule(
        now.is("SuccessCriteriaMet") && now.is("Failed"),
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    rule(
        now.is("SuccessCriteriaMet") && now.is("FailureTarget"),
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    for terminal in ["Failed", "Complete", "FailureTarget"] {
        rule(
            was.is(terminal) && !now.is(terminal),
            &format!("cannot disable the terminal {terminal}=True condition"),
        );
    }
    rule(
        was.is("SuccessCriteriaMet") && !now.is("SuccessCriteriaMet"),
        "cannot disable the SuccessCriteriaMet=True condition",
    );
    rule(
        was.is("Complete") && changed("SuccessCriteriaMet") && now.is("SuccessCriteriaMet"),
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn times(errors: &mut Errors, now: &View<'_>, was: &View<'_>, path: &FieldPath) {
    let (start, completion) = (now.field("startTime"), now.field("completionTime"));
    let start_changed = start != was.field("startTime");
    let completion_changed = completion != was.field("completionTime");
    let complete_changed = now.is("Complete") != was.is("Complete");
    let suspended = flag(now.job, "spec.suspend");
    if complete_changed || completion_changed {
        match (completion, now.is("Complete")) {
            (Some(time), false) => errors.invalid(
                path.child("completionTime"),
                time.clone(),
                "cannot set completionTime when there is no Complete=True condition",
            ),
            (None, true) => {
                errors.required(
                    path.child("completionTime"),
                    "completionTime is required for Complete jobs",
                );
            }
            _ => {}
        }
    }
    // Times are stored in one form, in which their order is that of their texts.
    if let (Some(Value::String(start)), Some(Value::String(end))) = (start, completion)
        && (start_changed || completion_changed)
        && end < start
    {
        let detail = "must be equal to or after `startTime`";
        errors.invalid(path.child("completionTime"), end.clone(), detail);
    }
    let empty = suspended && number(now.job, "spec.completions") == Some(0);
    if (now.finished() != was.finished() || start_changed) && !empty && start.is_none() && now.finished() {
        errors.required(path.child("startTime"), "startTime is required for finished job");
    }
    if let (Some(time), Some(before)) = (completion, was.field("completionTime"))
        && time != before
    {
        errors.invalid(path.child("completionTime"), time.clone(), "field is immutable");
    }
    let resuming = was.is("Suspended") && !now.is("Suspended");
    if start_changed && !resuming && was.field("startTime").is_some() && !suspended {
        errors.required(
            path.child("startTime"),
            "startTime cannot be removed for unsuspended job",
        );
    }
}

fn counters(errors: &mut Errors, now: &View<'_>, was: &View<'_>, path: &FieldPath) {
    let changed = |field: &str| now.field(field) != was.field(field);
    let finished_changed = now.finished() != was.finished();
    if (finished_changed || changed("active")) && now.finished() && now.count("active") > 0 {
        errors.invalid(
            path.child("active"),
            now.count("active"),
            "active>0 is invalid for finished job",
        );
    }
    if (finished_changed || changed("terminating")) && now.finished() && now.count("terminating") > 0 {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(path.child("terminating"), now.count("terminating"), detail);
    }
    if (changed("ready") || changed("active")) && now.count("ready") > now.count("active") {
        errors.invalid(
            path.child("ready"),
            now.count("ready"),
            "cannot set more ready pods than active",
        );
    }
    let uncounted = now.field("uncountedTerminatedPods");
    if (finished_changed || changed("uncountedTerminatedPods"))
        && now.finished()
        && let Some(pods) = uncounted
        && !(list(pods, "failed").is_empty() && list(pods, "succeeded").is_empty())
    {
        errors.invalid(
            path.child("uncountedTerminatedPods"),
            pods.clone(),
            "must be empty for finished job",
        );
    }
    if now.count("failed") < was.count("failed") {
        errors.invalid(
            path.child("failed"),
            now.count("failed"),
            "cannot decrease the failed counter",
        );
    }
    let scalable = text(now.job, "spec.completionMode") == "Indexed"
        && at(now.job, "spec.completions") == at(now.job, "spec.parallelism");
    if !scalable && now.count("succeeded") < was.count("succeeded") {
        errors.invalid(
            path.child("succeeded"),
            now.count("succeeded"),
            "cannot decrease the succeeded counter",
        );
    }
}

fn indexes(errors: &mut Errors, now: &View<'_>, was: &View<'_>, path: &FieldPath) {
    let completions = number(now.job, "spec.completions");
    let indexed = text(now.job, "spec.completionMode") == "Indexed";
    let limited = at(now.job, "spec.backoffLimitPerIndex").is_some();
    for field in ["completedIndexes", "failedIndexes"] {
        let Some(Value::String(indexes)) = now.field(field) else {
            continue;
        };
        if was.field(field) == now.field(field) {
            continue;
        }
        let path = path.child(field);
        if let Some(completions) = completions
            && (field == "completedIndexes" || limited)
            && let Err(problem) = count_indexes(indexes, completions)
        {
            errors.invalid(
                path.clone(),
                indexes.clone(),
                format!("error parsing {field}: {problem}"),
            );
        }
        if field == "completedIndexes" && !indexed && !indexes.is_empty() {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(path, indexes.clone(), detail);
        } else if field == "failedIndexes" && !limited {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(path, indexes.clone(), detail);
        }
    }
}
