use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::Plan,
    program::Shipped,
    scenario, search,
    simulation::{Simulation, play},
};
use std::time::Duration;
fn program() -> Shipped {
    let mut s = Safeguards::default();
    match std::env::var("OFF").as_deref() {
        Ok("barrier") => s.barrier = false,
        Ok("adoption") => s.adoption_check = false,
        Ok("finalizer") => s.job_finalizer = false,
        _ => {}
    }
    Shipped::with(s)
}
#[test]
fn probe() {
    let n: u64 = std::env::var("N").unwrap().parse().unwrap();
    let s = scenario::all()
        .into_iter()
        .find(|s| s.name == std::env::var("S").unwrap())
        .unwrap();
    let p = program();
    for seed in 0..n {
        let r = play(
            &p,
            &Simulation {
                scenario: &s,
                seed,
                plan: std::env::var("P").unwrap_or_default().parse::<Plan>().unwrap(),
                quiet: Duration::ZERO,
            },
        );
        println!("{} lines {:?}", r.trace.len(), r.violations);
        if std::env::var("T").is_ok() {
            println!("{}", r.trace.join("\n"))
        }
    }
}
#[test]
fn hunt() {
    let from: u64 = std::env::var("FROM").unwrap().parse().unwrap();
    let to: u64 = std::env::var("TO").unwrap().parse().unwrap();
    let only = std::env::var("S").ok();
    let p = program();
    let all: Vec<_> = scenario::all()
        .into_iter()
        .filter(|s| only.as_deref().is_none_or(|o| o.split(',').any(|o| o == s.name)))
        .collect();
    let shipped = Shipped::with(Safeguards::default());
    let cleans: Vec<_> = search::in_parallel(&all, |s| search::clean(&shipped, s))
        .into_iter()
        .map(|r| match r {
            Ok(c) => c,
            Err(f) => {
                panic!("clean {f}")
            }
        })
        .collect();
    let seeds: Vec<u64> = (from..to).collect();
    search::in_parallel(&seeds, |seed| {
        let (c, plan) = search::drawn(&cleans, *seed);
        if let Err(f) = search::disturbed(&p, c, *seed, plan) {
            println!("FAIL {} {} {} {:?}", f.scenario, f.seed, f.plan, f.violations);
        }
    });
}
