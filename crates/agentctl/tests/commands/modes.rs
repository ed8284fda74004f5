//! The same commands in both modes, and what is different.

use std::fmt::Write as _;

use crate::support::Cluster;

/// What commands print.
pub(crate) struct Played {
    /// In kube mode.
    pub(crate) kube: String,
    grpc: String,
}

/// Plays the same in both modes, each in a namespace of its own.
pub(crate) async fn in_both(namespaces: [&'static str; 2], play: impl AsyncFn(&Cluster) -> String) -> Played {
    let [kube, grpc] = Cluster::both(namespaces).await;
    Played {
        kube: play(&kube).await,
        grpc: play(&grpc).await,
    }
}

impl Played {
    /// That the mode makes no difference.
    pub(crate) fn is_the_same(&self) {
        assert_eq!(self.kube, self.grpc);
    }

    /// The commands that print something else through the control plane, and why.
    pub(crate) fn difference(&self, why: &str) -> String {
        let mut text = format!("Why: {why}\n");
        let (kube, grpc) = (commands(&self.kube), commands(&self.grpc));
        assert_eq!(kube.len(), grpc.len(), "the same commands are played");
        let mut any = false;
        for (one, other) in kube.iter().zip(&grpc) {
            if one == other {
                continue;
            }
            any = true;
            let command = one.lines().next().unwrap_or_default();
            let _ = writeln!(text, "\n{command}");
            for line in lacking(one, other) {
                let _ = writeln!(text, "kube: {line}");
            }
            for line in lacking(other, one) {
                let _ = writeln!(text, "grpc: {line}");
            }
        }
        assert!(any, "there is no difference, so that there is nothing to explain");
        text
    }
}

/// Each command with what it printed.
fn commands(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        match all.last_mut() {
            Some(command) if !line.starts_with("$ agentctl ") => {
                command.push_str(line);
                command.push('\n');
            }
            _ => all.push(format!("{line}\n")),
        }
    }
    all
}

/// The lines of one text that the other has not.
fn lacking<'a>(one: &'a str, other: &str) -> Vec<&'a str> {
    let mut left: Vec<&str> = other.lines().collect();
    one.lines()
        .filter(|line| match left.iter().position(|known| known == line) {
            Some(at) => {
                left.remove(at);
                false
            }
            None => true,
        })
        .collect()
}
