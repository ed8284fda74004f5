//! The script on a real cluster: kubectl prints the same there, but for what `cluster.diff` shows.
//!
//! `transcript.txt` is what it prints on kubelite. With `JANGAR_RECORD=1` the difference is written anew, and is then read like
//! code: docs/kubelite-differences.md gives the reasons.

use std::{env, fmt::Write as _, fs, sync::LazyLock};

use regex::Regex;
use similar::TextDiff;

use crate::{FILES, cluster::Cluster, running::Running, script, with_kubectl};

/// How much of what is the same is shown around a difference: it names the command.
const CONTEXT: usize = 2;

#[tokio::test]
async fn kubectl_prints_the_same_on_a_real_cluster_but_for_the_known_differences() {
    let directory = with_kubectl();
    let read = |name: &str| fs::read_to_string(format!("{FILES}/{name}")).expect("the file can be read");

    let running = Running::start::<Cluster>(directory.path());
    let transcript = script::run(&read("script.txt"), directory.path(), &running).await;
    running.stop();

    let found = difference(&timeless(&read("transcript.txt")), &timeless(&transcript));
    if env::var_os("JANGAR_RECORD").is_some() {
        fs::write(format!("{FILES}/cluster.diff"), found).expect("the difference can be written");
        return;
    }
    let expected = read("cluster.diff");
    if expected != found {
        let printed = concat!(env!("CARGO_TARGET_TMPDIR"), "/cluster.diff");
        fs::write(printed, &found).expect("the difference can be written");
        panic!(
            "kubectl/cluster.diff is not what differs\n{}\nJANGAR_RECORD=1 make conformance-tests writes it anew; found: {printed}",
            difference(&expected, &found)
        );
    }
}

/// Hunks without the numbers of their lines, which change with every line before them.
fn difference(kubelite: &str, cluster: &str) -> String {
    let diff = TextDiff::from_lines(kubelite, cluster);
    let mut text = String::new();
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        text.push_str("@@\n");
        for change in hunk.iter_changes() {
            let _ = write!(text, "{}{}", change.tag(), change.value());
        }
    }
    text
}

/// The clock of kubelite stands still in the script, and that of a cluster does not. Columns are as wide as what is in them.
fn timeless(transcript: &str) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let masks = [
            (r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "<time>"),
            (
                r"(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat), [0-9]{2} [A-Z][a-z]{2} 20[0-9]{2} [0-9:]{8} \+0000",
                "<time>",
            ),
            (r"(?m)(\s)(?:[0-9]+[smhdy])+(\s|$)", "$1<age>$2"),
            (r"X509SHA256=[0-9a-f]+", "<certificate>"),
            (r"\bgo1\.[0-9.]+", "<version of Go>"),
            // An Event that a cluster made itself.
            (r"tidy\.[0-9a-f]{16}", "tidy.<number>"),
            (r"(?m)(\S) {2,}", "$1  "),
            (r"(?m) +$", ""),
        ];
        masks
            .map(|(pattern, shown)| (Regex::new(pattern).expect("the pattern is valid"), shown))
            .into()
    });
    let masked = MASKS
        .iter()
        .fold(transcript.to_owned(), |text, (pattern, shown)| {
            pattern.replace_all(&text, *shown).into_owned()
        });
    in_order(&masked)
}

/// A cluster lists the mistakes in an object in any order.
fn in_order(transcript: &str) -> String {
    let is_mistake = |line: &&str| line.starts_with("stderr: * ");
    let mut lines: Vec<&str> = transcript.split_inclusive('\n').collect();
    for run in lines.chunk_by_mut(|one, other| is_mistake(one) && is_mistake(other)) {
        run.sort_unstable();
    }
    lines.concat()
}
