//! Whatever comes in gets a proper answer: requests that are made from good ones by damage, and bytes that mean nothing.
//!
//! Every run plays the same cases. `PROPTEST_CASES` asks for more of them, `PROPTEST_RNG_SEED` for others.

mod damage;
mod grpc;
mod http;

use std::time::Duration;

use axum::Router;
use jangar_api::Kind;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestRunner},
};

use crate::{
    stage::{NAMESPACE, Stage, agent},
    webhooks,
};

/// Together they take some seconds in a debug build.
const CASES: u32 = 128;
const SEED: u64 = 20_260_301;
/// A failure is found by its first example; a smaller one is welcome, but not worth minutes.
const SHRINKS_MAX: u32 = 64;
/// Nothing here waits for anything. More means that something hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the cases are played on.
struct Target {
    http: Router,
    grpc: Router,
}

/// Plays the cases of a strategy on one control plane, which has to answer afterwards as before.
fn play<S: Strategy>(strategy: &S, check: &impl AsyncFn(&Target, S::Value)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (stage, target) = runtime.block_on(async {
        let stage = webhooks::with_linear(webhooks::with(Stage::start().await).await).await;
        stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
        let target = Target {
            http: stage.http.clone(),
            grpc: jangar_server::grpc::router(stage.plane.clone()).await.unwrap(),
        };
        (stage, target)
    });
    let asked = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let config = Config {
        cases: asked("PROPTEST_CASES")
            .and_then(|cases| u32::try_from(cases).ok())
            .unwrap_or(CASES),
        rng_seed: RngSeed::Fixed(asked("PROPTEST_RNG_SEED").unwrap_or(SEED)),
        max_shrink_iters: SHRINKS_MAX,
        failure_persistence: None,
        ..Config::default()
    };
    let played = TestRunner::new(config).run(strategy, |value| {
        runtime.block_on(check(&target, value));
        Ok(())
    });
    played.unwrap();
    let (status, answer) = runtime.block_on(stage.get("reader", "/v1/agent-runs?namespace=agents"));
    assert!(status.is_success(), "{answer}");
}
