use jangar_engine::settings::Safeguards;
use jangar_testkit::{
    faults::Plan,
    program::Shipped,
    scenario,
    simulation::{Simulation, play},
};
use std::time::Duration;
#[test]
fn probe() {
    let n: u64 = std::env::var("N").unwrap().parse().unwrap();
    let s = scenario::all()
        .into_iter()
        .find(|s| s.name == std::env::var("S").unwrap())
        .unwrap();
    let p = Shipped::with(Safeguards::default());
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
