//! The table of `docs/orchestration-semantics.md`, made by the reference.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::reference::{End, Outcome, Skip, Step, evaluate};

const BEGIN: &str = "<!-- begin: made by crates/engine/tests/orchestration/table.rs -->";
const END: &str = "<!-- end -->";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/orchestration-semantics.md")
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeds => "succeeds",
        Outcome::Fails => "fails",
        Outcome::IsCancelled => "is cancelled",
        Outcome::ConditionFalse => "condition false",
    }
}

fn end(end: End, names: &[&str]) -> String {
    match end {
        End::Succeeded => "Succeeded".to_owned(),
        End::Failed => "Failed".to_owned(),
        End::Cancelled => "Cancelled".to_owned(),
        End::Skipped(why, cause) => {
            let why = match why {
                Skip::ConditionFalse => "ConditionFalse",
                Skip::DependencySkipped => "DependencySkipped",
                Skip::DependencyCancelled => "DependencyCancelled",
                Skip::DependencyFailed => "DependencyFailed",
            };
            match cause {
                Some(cause) => format!("Skipped/{why} by {}", names[cause]),
                None => format!("Skipped/{why}"),
            }
        }
    }
}

fn run(end: End) -> &'static str {
    match end {
        End::Failed => "Failed",
        End::Cancelled => "Failed/StepCancelled",
        End::Succeeded | End::Skipped(..) => "Succeeded",
    }
}

const OUTCOMES: [Outcome; 4] = [
    Outcome::Succeeds,
    Outcome::Fails,
    Outcome::IsCancelled,
    Outcome::ConditionFalse,
];

fn step(depends_on: &[usize], outcome: Outcome, continue_on_failure: bool) -> Step {
    Step {
        depends_on: depends_on.to_vec(),
        continue_on_failure,
        outcome,
    }
}

/// `a`, then `b`, then `c`: what becomes of the two behind, for every end of the first.
fn chain() -> String {
    let names = ["a", "b", "c"];
    let mut table = String::from(
        "| `a` | `continueOnFailure` of `a` | `a` ends | `b` ends | `c` ends | the run ends |\n|---|---|---|---|---|---|\n",
    );
    for first in OUTCOMES {
        for allowed in [false, true] {
            let steps = [
                step(&[], first, allowed),
                step(&[0], Outcome::Succeeds, false),
                step(&[1], Outcome::Succeeds, false),
            ];
            let (ends, whole) = evaluate(&steps);
            let told: Vec<String> = ends.iter().map(|one| end(*one, &names)).collect();
            let allowed = if allowed { "yes" } else { "no" };
            writeln!(
                table,
                "| {} | {allowed} | {} | {} |",
                outcome(first),
                told.join(" | "),
                run(whole)
            )
            .expect("a text");
        }
    }
    table
}

/// `a` and `b` side by side, and `c` behind both.
fn join() -> String {
    let names = ["a", "b", "c"];
    let mut table = String::from("| `a` | `b` | `c` ends | the run ends |\n|---|---|---|---|\n");
    for first in OUTCOMES {
        for second in OUTCOMES {
            let steps = [
                step(&[], first, false),
                step(&[], second, false),
                step(&[0, 1], Outcome::Succeeds, false),
            ];
            let (ends, whole) = evaluate(&steps);
            let last = end(ends[2], &names);
            writeln!(
                table,
                "| {} | {} | {last} | {} |",
                outcome(first),
                outcome(second),
                run(whole)
            )
            .expect("a text");
        }
    }
    table
}

/// A step in the middle that is allowed to fail changes nothing if it is skipped because of what it depends on.
fn middle() -> String {
    let names = ["a", "b", "c"];
    let mut table = String::from(
        "| `a` | `b`, with `continueOnFailure` | `b` ends | `c` ends | the run ends |\n|---|---|---|---|---|\n",
    );
    for first in OUTCOMES {
        for second in OUTCOMES {
            let steps = [
                step(&[], first, false),
                step(&[0], second, true),
                step(&[1], Outcome::Succeeds, false),
            ];
            let (ends, whole) = evaluate(&steps);
            let told: Vec<String> = ends[1..].iter().map(|one| end(*one, &names)).collect();
            writeln!(
                table,
                "| {} | {} | {} | {} |",
                outcome(first),
                outcome(second),
                told.join(" | "),
                run(whole)
            )
            .expect("a text");
        }
    }
    table
}

fn made() -> String {
    format!(
        "{BEGIN}\n\n### A chain: `b` depends on `a`, `c` on `b`\n\n`b` and `c` would succeed.\n\n{}\n\
         ### A join: `c` depends on `a` and on `b`\n\n`c` would succeed, and nothing has `continueOnFailure`.\n\n{}\n\
         ### A step in the middle with `continueOnFailure`\n\n{}\n{END}",
        chain(),
        join(),
        middle()
    )
}

#[test]
fn the_table_in_the_documentation_is_what_the_reference_says() {
    let text = fs::read_to_string(path()).expect("docs/orchestration-semantics.md");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    let expected = format!("{before}{}{after}", made());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path(), &expected).expect("docs/orchestration-semantics.md");
        return;
    }
    assert!(
        text == expected,
        "docs/orchestration-semantics.md differs from what the reference says: run `make generate`\n{}",
        made()
    );
}
