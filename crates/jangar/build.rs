//! How the program is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_static = target("FEATURE")
        .split(',')
        .any(|feature| feature == "crt-static");
    // The program starts itself again for every stage of a container and as agent-runner, eight times for a run. At a fixed
    // address it has no addresses to adjust then, which is most of what such a start costs. Static programs are linked in
    // another way that has no such option.
    if target("OS") == "linux" && !is_static {
        println!("cargo::rustc-link-arg-bin=jangar=-no-pie");
    }
}
