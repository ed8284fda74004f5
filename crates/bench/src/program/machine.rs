//! The machine and the settings of the cluster, as they are and not as they are meant to be: from `/proc`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use jangar_bench::results::Results;
use jiff::{Timestamp, Unit};

/// The parts of the cluster whose settings matter to figures.
const PARTS: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
];

/// The variables by which the parts of the cluster are tuned: how much garbage a Go program holds, and where that ends.
const TUNING: [&str; 2] = ["GOGC=", "GOMEMLIMIT="];

/// Writes down what this runs on. `bench` is the directory that the parts of the cluster write to.
pub(crate) fn describe(results: &mut Results, bench: &Path) -> Result<()> {
    results.set("measured at", Timestamp::now().round(Unit::Second)?.to_string());
    results.set("revision", revision());
    results.set("processors", std::thread::available_parallelism()?.to_string());
    results.set("processor", field("/proc/cpuinfo", "model name")?);
    results.set("memory", field("/proc/meminfo", "MemTotal")?);
    results.set("kernel", fs::read_to_string("/proc/sys/kernel/osrelease")?.trim());
    for part in PARTS {
        let line = command_line(part, bench)?.with_context(|| format!("{part} does not run"))?;
        results.set(part, line);
    }
    Ok(())
}

/// How many processes want to run, over the last 1, 5 and 15 minutes.
pub(crate) fn load() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn revision() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // A copy without its history can be measured as well.
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

fn field(path: &str, name: &str) -> Result<String> {
    let text = fs::read_to_string(path)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_once(':'));
    let (_, value) = line.with_context(|| format!("{path} does not say {name}"))?;
    Ok(value.trim().to_owned())
}

/// The flags of the process of this cluster that is called so, and how it is tuned. Several clusters may be up.
fn command_line(part: &str, bench: &Path) -> Result<Option<String>> {
    let bench = bench.to_string_lossy();
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        // A process may end while it is looked at.
        let Ok(line) = fs::read(process.join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).into_owned();
        let arguments: Vec<&str> = line.split('\0').filter(|argument| !argument.is_empty()).collect();
        let is_called = |argument: &&&str| Path::new(argument).file_name().is_some_and(|name| name == part);
        if arguments.iter().take(2).any(|argument| is_called(&argument)) && line.contains(&*bench) {
            let flags = arguments.iter().filter(|argument| argument.starts_with("--"));
            let flags = flags.map(|flag| shortened(flag, &bench));
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let tuned = environment
                .split('\0')
                .filter(|variable| TUNING.iter().any(|tuning| variable.starts_with(tuning)));
            let all: Vec<_> = tuned.map(str::to_owned).chain(flags).collect();
            return Ok(Some(all.join(" ")));
        }
    }
    Ok(None)
}

/// Without the paths of this machine.
fn shortened(flag: &str, bench: &str) -> String {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let root = root.canonicalize().unwrap_or(root);
    let home = env::var("HOME").unwrap_or_default();
    let mut text = flag
        .replace(bench, "BENCH")
        .replace(&*root.to_string_lossy(), ".");
    if !home.is_empty() {
        text = text.replace(&home, "~");
    }
    text
}
