//! The processor core of measurements on the host.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread on one core while it lives.
#[derive(Debug)]
pub struct OneCore {
    before: CpuSet,
    core: usize,
}

impl OneCore {
    /// Takes a core that this thread may use: the last one for number 0, the one before it for number 1, and so on. Returns nothing
    /// when there is only one, or the system does not tell.
    #[must_use]
    pub fn take(number: usize) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core)).collect();
        if cores.len() < 2 {
            return None;
        }
        let core = cores[cores.len() - 1 - number % cores.len()];
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).ok()?;
        Some(Self { before, core })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_gets_its_cores_back() {
        let cores = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).count();
        let Ok(before) = sched_getaffinity(None) else { panic!("the cores of this thread") };
        let mut taken = std::collections::BTreeSet::new();
        for number in 0..cores(&before) {
            if let Some(one) = OneCore::take(number) {
                let Ok(during) = sched_getaffinity(None) else { panic!("the cores of this thread") };
                assert_eq!(cores(&during), 1);
                assert!(during.is_set(one.number()) && taken.insert(one.number()), "each number has a core of its own");
            }
        }
        if taken.is_empty() {
            assert_eq!(cores(&before), 1);
        }
        let Ok(after) = sched_getaffinity(None) else { panic!("the cores of this thread") };
        assert_eq!(cores(&after), cores(&before));
    }
}
