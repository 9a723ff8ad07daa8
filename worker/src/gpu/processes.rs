//! Decides whether a process on a GPU belongs to this worker.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// Longest line of ancestors that is followed.
const MAX_ANCESTORS: usize = 64;

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// This process or a descendant of it.
    Ours,
    /// Another process on this machine.
    Foreign,
    /// It is not in our table: gone, or outside of this container.
    Unknown,
}

/// Tells whose a process is.
pub trait Processes: Send + Sync + fmt::Debug + 'static {
    /// Whose it is.
    fn kin(&self, pid: u32) -> Kin;
}

/// The system's table of processes.
#[derive(Debug, Clone)]
pub struct ProcessTable {
    root: PathBuf,
    ourselves: u32,
}

impl ProcessTable {
    /// As this process sees it.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::at(PathBuf::from("/proc"), std::process::id())
    }

    /// The table in this folder, as the process of this number sees it.
    #[must_use]
    pub fn at(root: PathBuf, ourselves: u32) -> Self {
        Self { root, ourselves }
    }

    /// Whether the process runs this program. Such processes take turns with this one by the device lock.
    fn runs_our_program(&self, pid: u32) -> bool {
        let program = |pid: u32| std::fs::read_link(self.root.join(pid.to_string()).join("exe")).ok();
        program(pid).is_some_and(|of_pid| program(self.ourselves) == Some(of_pid))
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let stat = std::fs::read_to_string(self.root.join(pid.to_string()).join("stat")).ok()?;
        // The name in parentheses may hold anything, also parentheses and blanks.
        let (_, after_name) = stat.rsplit_once(')')?;
        after_name.split_whitespace().nth(1)?.parse().ok()
    }
}

impl Processes for ProcessTable {
    fn kin(&self, pid: u32) -> Kin {
        let mut seen = BTreeSet::new();
        let mut current = pid;
        while seen.len() < MAX_ANCESTORS && seen.insert(current) {
            if current == self.ourselves || self.runs_our_program(current) {
                return Kin::Ours;
            }
            match self.parent(current) {
                Some(0) => return Kin::Foreign,
                Some(parent) => current = parent,
                None if current == pid => return Kin::Unknown,
                None => return Kin::Foreign,
            }
        }
        Kin::Foreign
    }
}
