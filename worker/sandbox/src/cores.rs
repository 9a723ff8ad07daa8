//! The processor cores on which threads run.
//!
//! A core that cannot be had costs precision, and nothing else: failures are not reported.

use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::procfs::{PROC, descendants, schedule, threads};

/// Returns the cores that the calling thread may use, in their order.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Puts cores together that are threads of one physical core, in the order of their first ones.
#[must_use]
pub fn by_physical_core(cores: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for core in cores {
        let file = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        let siblings = std::fs::read_to_string(Path::new(&file)).unwrap_or_else(|_| core.to_string());
        match groups.iter_mut().find(|(known, _)| *known == siblings) {
            Some((_, group)) => group.push(*core),
            None => groups.push((siblings, vec![*core])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Keeps the calling thread on one core while this lives.
#[derive(Debug)]
pub struct OneCore {
    before: CpuSet,
    core: usize,
}

impl OneCore {
    /// Takes this core. Returns nothing when the system does not allow it.
    #[must_use]
    pub fn take(core: usize) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        sched_setaffinity(None, &set_of(&[core])?).ok()?;
        Some(Self { before, core })
    }

    /// Takes one of the cores that this thread may use: the last one for number 0, the one before it for number 1, and so on. Returns
    /// nothing when there is only one.
    #[must_use]
    pub fn take_from_the_end(number: usize) -> Option<Self> {
        let cores = allowed();
        if cores.len() < 2 {
            return None;
        }
        Self::take(cores[cores.len() - 1 - number % cores.len()])
    }

    /// The core.
    #[must_use]
    pub fn number(&self) -> usize {
        self.core
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Keeps the calling thread on one core from now on.
pub(crate) fn stay_on(core: usize) {
    if let Some(set) = set_of(&[core]) {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Moves all threads of a process and of its descendants to these cores, and its first thread to the first one of them where
/// `pinned`. A thread that starts later runs where the one may run that starts it.
pub fn move_process(pid: i32, cores: &[usize], pinned: bool) {
    let (Some(all), Some(first)) = (set_of(cores), cores.first().and_then(|core| set_of(&[*core]))) else { return };
    for process in std::iter::once(pid).chain(descendants(pid)) {
        for thread in threads(process) {
            let set = if pinned && thread == pid { &first } else { &all };
            let _ = sched_setaffinity(Pid::from_raw(thread), set);
        }
    }
}

/// Moves all threads of this process to these cores, but for the processes that it has started already.
pub fn move_this_process(cores: &[usize]) {
    let Some(set) = set_of(cores) else { return };
    for thread in threads(i32::try_from(std::process::id()).unwrap_or(0)) {
        let _ = sched_setaffinity(Pid::from_raw(thread), &set);
    }
}

/// Returns for how many nanoseconds the calling thread was ready to run and waited for a core, where the kernel counts it.
#[must_use]
pub fn waited_ns() -> Option<u64> {
    Some(schedule(&Path::new(PROC).join("thread-self"))?.waited_ns)
}

/// Returns the same for the first thread of a process.
#[must_use]
pub fn waited_ns_of(pid: i32) -> Option<u64> {
    Some(schedule(Path::new(&format!("{PROC}/{pid}/task/{pid}")))?.waited_ns)
}

fn set_of(cores: &[usize]) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(*core);
    }
    (set.count() > 0).then_some(set)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_thread_gets_its_cores_back() {
        let before = allowed();
        let mut taken = BTreeSet::new();
        for number in 0..before.len() {
            if let Some(one) = OneCore::take_from_the_end(number) {
                assert_eq!(allowed(), [one.number()]);
                assert!(taken.insert(one.number()), "each number has a core of its own");
            }
        }
        assert!(before.len() < 2 || taken.len() == before.len());
        assert_eq!(allowed(), before);
    }

    #[test]
    fn every_core_is_in_one_group() {
        let cores = allowed();
        let mut grouped: Vec<usize> = by_physical_core(&cores).concat();
        grouped.sort_unstable();
        assert_eq!(grouped, cores);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a shell that needs no sandbox")]
    fn a_process_and_its_children_are_moved() {
        let cores = allowed();
        let mut child =
            Command::new("/bin/sh").args(["-c", "sleep 30 & read line"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while descendants(pid).is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let counts = || {
            let all = std::iter::once(pid).chain(descendants(pid));
            all.map(|process| sched_getaffinity(Pid::from_raw(process)).unwrap().count()).collect::<Vec<_>>()
        };
        move_process(pid, &cores, true);
        assert_eq!(counts(), [1, u32::try_from(cores.len()).unwrap()], "its first thread is pinned, its child is not");
        move_process(pid, &cores[..1], false);
        assert_eq!(counts(), [1, 1]);
        move_process(pid, &cores, false);
        assert_eq!(counts(), [u32::try_from(cores.len()).unwrap(); 2]);
        for process in descendants(pid) {
            rustix::process::kill_process(Pid::from_raw(process).unwrap(), rustix::process::Signal::KILL).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn no_cores_are_no_set() {
        assert!(set_of(&[]).is_none() && set_of(&[CpuSet::MAX_CPU]).is_none());
        assert_eq!(set_of(&[1, 3]).unwrap().count(), 2);
    }
}
