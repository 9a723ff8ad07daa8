//! Reads the kernel's process table.

use std::path::Path;

/// The process table of this machine.
pub(crate) const PROC: &str = "/proc";

/// Fields of `/proc/PID/stat` that this crate uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// State letter: `R` running, `S` sleeping, `T` stopped, `Z` zombie and so on.
    pub(crate) state: char,
    /// Process id of the parent.
    pub(crate) parent: i32,
    /// Start time in clock ticks after boot. It tells a process from a later one with the same id.
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Returns whether the process has ended and only waits to be reaped.
    pub(crate) fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Returns whether a stop signal has taken effect.
    pub(crate) fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Reads a process's entry in a process table such as `/proc`; none when it does not exist.
pub(crate) fn stat(table: &Path, pid: i32) -> Option<Stat> {
    read_stat(&table.join(pid.to_string()).join("stat"))
}

/// Reads a `stat` file of a process or thread; none when it does not exist.
pub(crate) fn read_stat(file: &Path) -> Option<Stat> {
    let text = std::fs::read_to_string(file).ok()?;
    // The command name in parentheses may contain spaces and parentheses, so fields are counted from its end.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start_ticks })
}

/// Times of a thread in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// On a core.
    pub(crate) ran_ns: u64,
    /// Ready to run, without a core.
    pub(crate) waited_ns: u64,
}

/// Reads the times of the thread with this folder; none where the kernel does not count them.
pub(crate) fn schedule(folder: &Path) -> Option<Schedule> {
    let text = std::fs::read_to_string(folder.join("schedstat")).ok()?;
    let mut times = text.split_whitespace().map_while(|time| time.parse().ok());
    Some(Schedule { ran_ns: times.next()?, waited_ns: times.next()? })
}

/// Lists the process ids of a table.
pub(crate) fn processes(table: &Path) -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(table).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Lists the thread ids of a process of this machine.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    processes(&Path::new(PROC).join(pid.to_string()).join("task")).collect()
}

/// Lists the children of a process of this machine.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let by_thread = |thread: i32| std::fs::read_to_string(format!("{PROC}/{parent}/task/{thread}/children"));
    let lists: Result<Vec<String>, _> = threads(parent).into_iter().map(by_thread).collect();
    match lists {
        Ok(lists) => lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect(),
        // Kernels without CONFIG_PROC_CHILDREN have no such file, and a thread may have ended meanwhile.
        Err(_) => processes(Path::new(PROC))
            .filter(|pid| stat(Path::new(PROC), *pid).is_some_and(|stat| stat.parent == parent))
            .collect(),
    }
}

/// Lists the descendants of a process of this machine, without the process itself.
pub(crate) fn descendants(ancestor: i32) -> Vec<i32> {
    let mut found = children(ancestor);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for child in children(parent) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file_is_read_whatever_the_command_name_contains() {
        let table = tempfile::tempdir().unwrap();
        std::fs::create_dir(table.path().join("7")).unwrap();
        let text = "7 (a) name) D 3 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 1000 10";
        std::fs::write(table.path().join("7/stat"), text).unwrap();
        let expected = Stat { state: 'D', parent: 3, start_ticks: 777 };
        assert_eq!(stat(table.path(), 7), Some(expected));
        assert!(!expected.has_ended() && !expected.is_stopped());
        assert_eq!(stat(table.path(), 8), None);
        assert_eq!(processes(table.path()).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn the_times_of_a_thread_are_read_where_they_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(schedule(folder.path()), None);
        std::fs::write(folder.path().join("schedstat"), "1200 34 5\n").unwrap();
        assert_eq!(schedule(folder.path()), Some(Schedule { ran_ns: 1200, waited_ns: 34 }));
    }

    #[test]
    fn a_child_is_listed_among_the_children_of_its_parent() {
        let this = i32::try_from(std::process::id()).unwrap();
        let parent = stat(Path::new(PROC), this).unwrap().parent;
        assert!(children(parent).contains(&this));
        assert!(descendants(parent).contains(&this));
        assert!(threads(this).contains(&this));
    }
}
