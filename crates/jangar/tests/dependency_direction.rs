//! Holds the direction of the dependencies between the crates of this workspace, and keeps input and output out of the crates
//! that decide. `docs/architecture.md` draws the same arrows.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value;

/// One crate, by the name of its directory below `crates/`, and what it may depend on.
struct Room {
    name: &'static str,
    /// Allowed in the program.
    may_use: &'static [&'static str],
    /// Allowed in its tests beside that.
    tests_may_use: &'static [&'static str],
}

/// The whole house, built or not. A crate that has no row here fails the test.
///
/// `testkit` stands in no `may_use`: it is for tests only. kubelite learns every kind from its CRD, so not even its tests know
/// the kinds of Jangar.
#[rustfmt::skip] // It is read as a table.
const ROOMS: &[Room] = &[
    Room { name: "api", may_use: &[], tests_may_use: &[] },
    Room { name: "engine", may_use: &["api"], tests_may_use: &["testkit"] },
    Room { name: "forge", may_use: &[], tests_may_use: &[] },
    Room { name: "controllers", may_use: &["api", "engine", "forge"], tests_may_use: &["kubelite", "testkit"] },
    Room { name: "temporal", may_use: &["engine", "controllers"], tests_may_use: &["api", "kubelite", "testkit"] },
    Room { name: "store", may_use: &["api"], tests_may_use: &["testkit"] },
    Room { name: "proto", may_use: &[], tests_may_use: &[] },
    Room { name: "server", may_use: &["api", "engine", "store", "proto"], tests_may_use: &["kubelite", "testkit"] },
    Room { name: "kubelite", may_use: &[], tests_may_use: &[] },
    Room { name: "runner", may_use: &["forge"], tests_may_use: &["testkit"] },
    Room { name: "agentctl", may_use: &["api", "engine", "proto"], tests_may_use: &["kubelite", "server", "store", "testkit"] },
    Room {
        name: "jangar",
        may_use: &["api", "engine", "forge", "controllers", "temporal", "store", "proto", "server", "kubelite", "runner", "agentctl"],
        tests_may_use: &["testkit"],
    },
    Room {
        name: "testkit",
        may_use: &["api", "engine", "forge", "controllers", "store", "proto", "server", "kubelite"],
        tests_may_use: &[],
    },
    Room { name: "bench", may_use: &["api"], tests_may_use: &[] },
];

/// Crates whose normal dependencies must hold none of [`INPUT_AND_OUTPUT`].
const PURE: &[&str] = &["api", "engine"];

/// Libraries that talk to the world: with one of them among its dependencies, a decision could depend on it.
#[rustfmt::skip] // It is read as a list.
const INPUT_AND_OUTPUT: &[&str] = &[
    "axum", "hyper", "kube-client", "kube-runtime", "mio", "redb", "reqwest", "rustls", "socket2", "sqlx", "sqlx-core",
    "tokio", "tonic",
];

/// One `[dependencies]`, `[build-dependencies]` or `[dev-dependencies]` entry between two crates of the workspace.
#[derive(Debug)]
struct Edge {
    from: String,
    to: String,
    dev: bool,
}

/// A crate of the workspace: its directory below `crates/` and the name of its package.
struct Member {
    directory: String,
    package: String,
}

#[test]
fn dependencies_between_crates_point_downwards() {
    let metadata = metadata();
    let members: Vec<String> = members(&metadata)
        .into_iter()
        .map(|member| member.directory)
        .collect();

    let violations = violations(&members, &edges(&metadata));

    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn crates_that_decide_have_no_input_or_output_among_their_dependencies() {
    let pure = members(&metadata())
        .into_iter()
        .filter(|member| PURE.contains(&member.directory.as_str()));
    let mut looked_at = 0;

    for Member { directory, package } in pure {
        let closure = normal_dependencies(&package);
        assert!(
            closure.contains(&package),
            "cargo tree did not list {package} itself"
        );
        let found: Vec<_> = INPUT_AND_OUTPUT
            .iter()
            .filter(|name| closure.contains(**name))
            .collect();
        assert!(
            found.is_empty(),
            "crates/{directory} must stay free of input and output, but depends on {found:?}; \
             `cargo tree -p {package} -e normal -i {}` shows the way there",
            found[0],
        );
        looked_at += 1;
    }

    assert!(looked_at > 0, "none of {PURE:?} is in the workspace");
}

#[test]
fn an_edge_upwards_is_named() {
    let members = ["api", "engine"].map(String::from);

    let found = violations(
        &members,
        &[edge("api", "engine", false), edge("engine", "api", false)],
    );

    assert_eq!(
        found,
        ["crates/api must not depend on crates/engine: dependencies point downwards only"]
    );
}

#[test]
fn test_code_may_be_used_by_tests_only() {
    let members = ["controllers", "testkit"].map(String::from);

    assert!(violations(&members, &[edge("controllers", "testkit", true)]).is_empty());
    assert_eq!(
        violations(&members, &[edge("controllers", "testkit", false)]).len(),
        1
    );
}

#[test]
fn a_crate_without_a_row_is_asked_for_one() {
    let found = violations(&["attic".to_owned()], &[]);

    assert_eq!(
        found,
        [
            "crates/attic has no row in ROOMS: add it to crates/jangar/tests/dependency_direction.rs \
          and to docs/architecture.md, saying what it may depend on"
        ]
    );
}

#[test]
fn the_table_names_only_rooms_of_its_own() {
    let names: BTreeSet<_> = ROOMS.iter().map(|room| room.name).collect();

    for room in ROOMS {
        for other in room.may_use.iter().chain(room.tests_may_use) {
            assert!(
                names.contains(other),
                "the row of {} names {other}, which has no row",
                room.name
            );
        }
    }
    assert_eq!(names.len(), ROOMS.len(), "a room has two rows");
}

#[test]
fn the_table_itself_has_no_cycle() {
    // A room is settled once everything it may use is; what is left over at the end goes round in a circle.
    let mut settled = BTreeSet::new();
    for _ in ROOMS {
        for room in ROOMS {
            if room.may_use.iter().all(|other| settled.contains(other)) {
                settled.insert(room.name);
            }
        }
    }

    let circle: Vec<_> = ROOMS
        .iter()
        .map(|room| room.name)
        .filter(|name| !settled.contains(name))
        .collect();

    assert!(
        circle.is_empty(),
        "these rooms may use each other in a circle: {circle:?}"
    );
}

/// What is wrong with these crates and the edges between them, as sentences.
fn violations(members: &[String], edges: &[Edge]) -> Vec<String> {
    let room_of = |name: &str| ROOMS.iter().find(|room| room.name == name);
    let strangers = members.iter().filter(|name| room_of(name).is_none()).map(|name| {
        format!(
            "crates/{name} has no row in ROOMS: add it to crates/jangar/tests/dependency_direction.rs \
             and to docs/architecture.md, saying what it may depend on"
        )
    });
    let upwards = edges.iter().filter_map(|edge| {
        let room = room_of(&edge.from)?;
        let allowed = room.may_use.contains(&edge.to.as_str())
            || (edge.dev && room.tests_may_use.contains(&edge.to.as_str()));
        (!allowed).then(|| {
            let what = if edge.dev {
                "must not have as dev-dependency"
            } else {
                "must not depend on"
            };
            format!(
                "crates/{} {what} crates/{}: dependencies point downwards only",
                edge.from, edge.to
            )
        })
    });
    strangers.chain(upwards).collect()
}

fn edge(from: &str, to: &str, dev: bool) -> Edge {
    Edge {
        from: from.to_owned(),
        to: to.to_owned(),
        dev,
    }
}

/// What the manifests of the workspace say, without resolving anything: this needs no network and no build.
fn metadata() -> Value {
    let json = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    serde_json::from_str(&json).expect("cargo metadata prints JSON")
}

fn members(metadata: &Value) -> Vec<Member> {
    packages(metadata)
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let directory = Path::new(manifest)
                .parent()
                .expect("a manifest lies in a directory");
            Member {
                directory: last_part(directory),
                package: text(&package["name"]).to_owned(),
            }
        })
        .collect()
}

fn edges(metadata: &Value) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (member, package) in members(metadata).iter().zip(packages(metadata)) {
        let dependencies = package["dependencies"]
            .as_array()
            .expect("a list of dependencies");
        // Only crates of the workspace are depended on by path.
        for dependency in dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string())
        {
            edges.push(Edge {
                from: member.directory.clone(),
                to: last_part(Path::new(text(&dependency["path"]))),
                dev: dependency["kind"] == "dev",
            });
        }
    }
    edges
}

/// The names of every package that is compiled into `package` when it is built alone, itself included.
///
/// `cargo metadata` would not do: it resolves the workspace as a whole, where another crate may turn on features of a shared
/// dependency that this one does not ask for.
fn normal_dependencies(package: &str) -> BTreeSet<String> {
    let tree = cargo(&[
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--offline",
    ]);
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .expect("cargo could not be started");
    assert!(
        output.status.success(),
        "cargo {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"]
        .as_array()
        .expect("a list of packages")
        .iter()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn last_part(path: &Path) -> String {
    path.file_name()
        .expect("a path that ends in a name")
        .to_string_lossy()
        .into_owned()
}
