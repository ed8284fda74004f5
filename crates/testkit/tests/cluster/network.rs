//! The cluster has a network to itself: nothing leads out of it, and nothing into it.

use std::{
    collections::BTreeSet,
    env, fs, io,
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use jangar_testkit::cluster::{Bench, Failure};

/// Where the API server listens inside. Outside, the address belongs to nobody.
const API: &str = "10.89.0.1:6443";
/// An address of a range that is set aside for documentation: nobody has it, and it is not local.
const OUTSIDE: &str = "198.51.100.1:443";
/// A refusal comes at once; waiting for an answer that never comes would not.
const PATIENCE: Duration = Duration::from_secs(5);

fn connect(address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().expect("an address");
    TcpStream::connect_timeout(&address, PATIENCE)
}

#[test]
fn only_pods_are_behind_the_interfaces() -> Result<(), Failure> {
    Bench::here()?;
    let table = fs::read_to_string("/proc/net/dev")?;

    let strangers: BTreeSet<_> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo" && *name != "pods" && !name.starts_with("veth"))
        .collect();

    assert!(strangers.is_empty(), "these lead somewhere else: {strangers:?}");
    Ok(())
}

#[test]
fn nothing_leads_out() -> Result<(), Failure> {
    Bench::here()?;
    connect(API)?;

    let error = connect(OUTSIDE).expect_err("there is a way out");

    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{error}");
    Ok(())
}

/// The process that runs this command inside has stayed outside itself. Only root may follow it there, as only root has a
/// real node. A connection alone would prove nothing: some machines sit behind something that answers for every address. The
/// certificate tells, which kubectl checks.
#[test]
fn nothing_leads_in() -> Result<(), Failure> {
    Bench::here()?.real_node()?;
    let ask = |network: &str| {
        Command::new("nsenter")
            .args([
                network,
                "--",
                "kubectl",
                "get",
                "--raw=/readyz",
                "--request-timeout=5s",
            ])
            .output()
    };
    let inside = ask("--net=/proc/self/ns/net")?;
    assert!(
        inside.status.success(),
        "{}",
        String::from_utf8_lossy(&inside.stderr)
    );

    let outside = ask(&format!(
        "--net=/proc/{}/ns/net",
        env::var("JANGAR_TEST_OUTSIDE")?
    ))?;

    assert!(
        !outside.status.success(),
        "the API server answers outside of the bench"
    );
    Ok(())
}
