//! The engine agrees with the reference.

use std::{collections::BTreeMap, thread};

use jangar_api::orchestration::{OrchestrationSpec, Step as ApiStep, StepKind};
use jangar_engine::orchestration::{
    Graph, StepId,
    advance::{Advance, Ended, Going, RunEnd, State, Verdict, Why, advance},
    read,
};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, proptest};

use crate::reference::{End, Outcome, Skip, Step, evaluate};

/// More than this machine has cores is no harm.
const THREADS: usize = 4;

const OUTCOMES: [Outcome; 4] = [
    Outcome::Succeeds,
    Outcome::Fails,
    Outcome::IsCancelled,
    Outcome::ConditionFalse,
];

/// The steps as somebody would write them.
fn graph(steps: &[Step]) -> Graph {
    let written = steps.iter().enumerate().map(|(number, step)| {
        let depends_on = step.depends_on.iter().map(|other| format!("s{other}")).collect();
        ApiStep {
            name: format!("s{number}"),
            kind: StepKind::Checkpoint,
            depends_on: Some(depends_on),
            continue_on_failure: Some(step.continue_on_failure),
            agent_ref: None,
            tool_ref: None,
            orchestration_ref: None,
            policy_ref: None,
            with: None,
            when: None,
            retries: None,
            retry_backoff_seconds: None,
            timeout_seconds: None,
            extra: BTreeMap::new(),
        }
    });
    let spec = OrchestrationSpec {
        steps: written.collect(),
        ..OrchestrationSpec::default()
    };
    read(&spec).expect("a graph")
}

/// Plays a run: of the steps that work, `pick` says which one ends next; without a choice, all do.
fn play(
    graph: &Graph,
    outcomes: &[Outcome],
    mut pick: impl FnMut(usize) -> Option<usize>,
) -> (Vec<End>, End) {
    let mut states = vec![State::Waiting; outcomes.len()];
    let mut working: Vec<StepId> = Vec::new();
    loop {
        let next: Advance = advance(graph, &states, Going::On, |step| match outcomes[step.0] {
            Outcome::ConditionFalse => Verdict::Skip,
            _ => Verdict::Run,
        });
        for (step, skipped) in &next.skips {
            states[step.0] = State::Ended(Ended::Skipped(*skipped));
        }
        for step in &next.starts {
            states[step.0] = State::Active;
            working.push(*step);
        }
        if let Some(end) = next.end {
            assert!(working.is_empty(), "a run that ends has nothing at work");
            return (states.into_iter().map(seen).collect(), of_run(end));
        }
        assert!(
            !working.is_empty(),
            "a run that goes on has something at work: {states:?}"
        );
        let ended = match pick(working.len()) {
            Some(choice) => vec![working.swap_remove(choice % working.len())],
            None => std::mem::take(&mut working),
        };
        for step in ended {
            states[step.0] = State::Ended(match outcomes[step.0] {
                Outcome::Succeeds | Outcome::ConditionFalse => Ended::Succeeded,
                Outcome::Fails => Ended::Failed,
                Outcome::IsCancelled => Ended::Cancelled,
            });
        }
    }
}

fn seen(state: State) -> End {
    match state {
        State::Ended(Ended::Succeeded) => End::Succeeded,
        State::Ended(Ended::Failed) => End::Failed,
        State::Ended(Ended::Cancelled) => End::Cancelled,
        State::Ended(Ended::Skipped(skipped)) => {
            let why = match skipped.why {
                Why::ConditionFalse => Skip::ConditionFalse,
                Why::DependencySkipped => Skip::DependencySkipped,
                Why::DependencyCancelled => Skip::DependencyCancelled,
                Why::DependencyFailed => Skip::DependencyFailed,
                Why::RunStopping | Why::RunCancelled => panic!("nobody stopped the run"),
            };
            End::Skipped(why, skipped.cause.map(|step| step.0))
        }
        State::Waiting | State::Active => panic!("{state:?} is no end"),
    }
}

fn of_run(end: RunEnd) -> End {
    match end {
        RunEnd::Succeeded => End::Succeeded,
        RunEnd::Failed(_) => End::Failed,
        RunEnd::StepCancelled(_) => End::Cancelled,
    }
}

/// All graphs of so many steps: each step may depend on any other, as long as there is no cycle.
fn all_graphs(count: usize) -> impl Iterator<Item = Vec<Vec<usize>>> {
    let pairs: Vec<(usize, usize)> = (0..count)
        .flat_map(|step| {
            (0..count)
                .filter(move |other| *other != step)
                .map(move |other| (step, other))
        })
        .collect();
    (0..1_u32 << pairs.len()).filter_map(move |choice| {
        let mut dependencies = vec![Vec::new(); count];
        for (bit, (step, other)) in pairs.iter().enumerate() {
            if choice & (1 << bit) != 0 {
                dependencies[*step].push(*other);
            }
        }
        has_an_order(&dependencies).then_some(dependencies)
    })
}

fn has_an_order(dependencies: &[Vec<usize>]) -> bool {
    let mut done = vec![false; dependencies.len()];
    for _ in 0..dependencies.len() {
        for (step, own) in dependencies.iter().enumerate() {
            done[step] = own.iter().all(|other| done[*other]);
        }
    }
    done.into_iter().all(|done| done)
}

#[test]
fn the_engine_agrees_on_every_graph_of_up_to_four_steps() {
    let mut compared = 0;
    for count in 1..=4 {
        let graphs: Vec<_> = all_graphs(count).collect();
        // The number of labelled graphs without a cycle, which is well known.
        assert_eq!(graphs.len(), [1, 3, 25, 543][count - 1]);
        compared += thread::scope(|scope| {
            let shares = graphs.chunks(graphs.len().div_ceil(THREADS));
            let threads: Vec<_> = shares.map(|share| scope.spawn(|| compare_all(share))).collect();
            let counts = threads
                .into_iter()
                .map(|thread| thread.join().expect("no difference"));
            counts.sum::<usize>()
        });
    }
    assert_eq!(compared, 8 + 3 * 64 + 25 * 512 + 543 * 4096);
}

/// Compares every choice of outcomes and of `continueOnFailure` on these graphs.
fn compare_all(graphs: &[Vec<Vec<usize>>]) -> usize {
    let mut compared = 0;
    for dependencies in graphs {
        let count = dependencies.len();
        for allowed in 0..1_usize << count {
            let step = |(number, own): (usize, &Vec<usize>)| Step {
                depends_on: own.clone(),
                continue_on_failure: allowed & (1 << number) != 0,
                outcome: Outcome::Succeeds,
            };
            let mut steps: Vec<Step> = dependencies.iter().enumerate().map(step).collect();
            let graph = graph(&steps);
            for choice in 0..1_usize << (2 * count) {
                for (number, step) in steps.iter_mut().enumerate() {
                    step.outcome = OUTCOMES[(choice >> (2 * number)) & 3];
                }
                let outcomes: Vec<Outcome> = steps.iter().map(|step| step.outcome).collect();
                assert_eq!(play(&graph, &outcomes, |_| None), evaluate(&steps), "{steps:#?}");
                compared += 1;
            }
        }
    }
    compared
}

/// A random graph: each step depends on some of those that come before it in a random order.
fn random_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        any::<bool>(),
        0..OUTCOMES.len(),
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    );
    prop::collection::vec(step, 1..=40)
        .prop_flat_map(|drawn| {
            let order: Vec<usize> = (0..drawn.len()).collect();
            (Just(drawn), Just(order).prop_shuffle())
        })
        .prop_map(|(drawn, order)| {
            let mut steps: Vec<Option<Step>> = vec![None; drawn.len()];
            for (place, (allowed, outcome, indices)) in drawn.into_iter().enumerate() {
                let before = &order[..place];
                let mut depends_on: Vec<usize> = indices
                    .iter()
                    .filter(|_| !before.is_empty())
                    .map(|index| *index.get(before))
                    .collect();
                depends_on.sort_unstable();
                depends_on.dedup();
                steps[order[place]] = Some(Step {
                    depends_on,
                    continue_on_failure: allowed,
                    outcome: OUTCOMES[outcome],
                });
            }
            steps
                .into_iter()
                .map(|step| step.expect("each is drawn once"))
                .collect()
        })
}

proptest! {
    /// Whatever is faster than what.
    #[test]
    fn the_engine_agrees_on_random_graphs_in_any_order_of_events(
        steps in random_steps(),
        picks in prop::collection::vec(any::<usize>(), 40),
    ) {
        let outcomes: Vec<Outcome> = steps.iter().map(|step| step.outcome).collect();
        let mut picks = picks.into_iter();
        let played = play(&graph(&steps), &outcomes, |_| picks.next());
        prop_assert_eq!(played, evaluate(&steps));
    }
}
