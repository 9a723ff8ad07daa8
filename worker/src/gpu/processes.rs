//! Decides whether a process on a GPU belongs to this worker.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// Maximum number of ancestors to follow.
const MAX_ANCESTORS: usize = 64;

/// The owner of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// This process or a descendant of it.
    Ours,
    /// Another process on this machine.
    Foreign,
    /// The process is not in the table: it ended, or is outside of this container.
    Unknown,
}

/// Finds the owners of processes.
pub trait Processes: Send + Sync + fmt::Debug + 'static {
    /// Returns the owner of a process.
    fn kin(&self, pid: u32) -> Kin;
}

/// The system's process table.
#[derive(Debug, Clone)]
pub struct ProcessTable {
    root: PathBuf,
    ourselves: u32,
}

impl ProcessTable {
    /// Opens the table as this process sees it.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::at(PathBuf::from("/proc"), std::process::id())
    }

    /// Opens the table in this folder, as the process with this id sees it.
    #[must_use]
    pub fn at(root: PathBuf, ourselves: u32) -> Self {
        Self { root, ourselves }
    }

    /// Returns whether the process runs this program. The device lock coordinates such processes with this one.
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
