//! How to reach every process of a container.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// What bounds the processes of a container.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tree {
    /// A PID namespace whose process 1 we are.
    Namespace,
    /// Nothing but descent from us.
    Descendants { main: Pid },
}

impl Tree {
    /// Sends a signal to every process of the container. Processes that end meanwhile are no error.
    pub(super) fn signal(self, signal: Signal) {
        match self {
            // To signal the process group of process 1 is to signal every process but oneself.
            Self::Namespace => {
                let _ = kill_process_group(Pid::INIT, signal);
            }
            Self::Descendants { main } => {
                let _ = kill_process_group(main, signal);
                for pid in descendants() {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Every living process that descends from this one. Orphans come back to us because we asked for them.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<Pid> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let parents: Vec<(i32, i32)> = entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parent_in(&stat)?))
        })
        .collect();
    below(me, &parents)
        .into_iter()
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn descendants() -> Vec<Pid> {
    Vec::new()
}

/// The parent in a line of `/proc/PID/stat`. The name in it may hold anything, so it is found from its end.
#[cfg(any(target_os = "linux", test))]
fn parent_in(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.next()?.parse().ok()
}

/// All that descend from `root`, parents before children.
#[cfg(any(target_os = "linux", test))]
fn below(root: i32, parents: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = parents.iter().filter(|(pid, of)| *of == parent && *pid != parent);
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_whatever_the_process_is_called() {
        for (line, parent) in [
            ("17 (sh) S 3 17 17 0", Some(3)),
            ("17 (a) b) 9 (c) R 4 17", Some(4)),
            ("17 (gone) Z 4 17", None),
            ("", None),
        ] {
            assert_eq!(parent_in(line), parent, "{line}");
        }
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let parents = [(2, 1), (3, 1), (4, 3), (5, 4), (9, 8), (8, 2)];
        assert_eq!(below(3, &parents), [4, 5]);
        assert_eq!(below(1, &parents), [2, 3, 8, 4, 9, 5]);
        assert!(below(5, &parents).is_empty());
    }
}
