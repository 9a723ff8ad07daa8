//! Processes and their children, by /proc.

/// A process, told from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: u32,
    started: String,
}

impl Process {
    /// Returns whether it still runs; a zombie does not.
    pub(crate) fn is_alive(&self) -> bool {
        stat(self.id).is_some_and(|(state, _, started)| started == self.started && state != "Z")
    }
}

/// State, parent and start time of a process.
fn stat(id: u32) -> Option<(String, u32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name may hold spaces and parentheses: the fields begin after its last one.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(((*fields.first()?).to_owned(), fields.get(1)?.parse().ok()?, (*fields.get(19)?).to_owned()))
}

/// Every process below this one.
pub(crate) fn descendants(root: u32) -> Vec<Process> {
    let all: Vec<(u32, u32, String)> = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|id| stat(id).map(|(_, parent, started)| (id, parent, started)))
        .collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (id, _, started) in all.iter().filter(|(_, its_parent, _)| *its_parent == parent) {
            parents.push(*id);
            found.push(Process { id: *id, started: started.clone() });
        }
    }
    found
}

/// `kill -9` for a process and everything below it.
#[expect(clippy::disallowed_methods, reason = "the test kills what it started")]
pub(crate) fn kill_tree(root: u32) {
    let mut command = std::process::Command::new("kill");
    command.arg("-9").arg(root.to_string());
    for process in descendants(root) {
        command.arg(process.id.to_string());
    }
    // A process may end by itself in between: then there is nothing to kill.
    let _ = command.stderr(std::process::Stdio::null()).status().expect("kill runs");
}
