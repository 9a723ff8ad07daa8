//! Equal conditions for timed calls: one core for everybody, and a cache that holds nobody's data.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cache that is swept before a timed call when nothing is known about the machine, in bytes.
const DEFAULT_SWEEP_BYTES: u64 = 16 * 1024 * 1024;

/// Most that is swept. Larger last-level caches are shared with other machines' guests anyway, and both programs are
/// treated alike; sweeping them whole would take longer than most calls.
const MAX_SWEEP_BYTES: u64 = 16 * 1024 * 1024;

/// Size of a cache line in 64-bit words.
const LINE_WORDS: usize = 8;

/// Keeps this thread on one core while it lives.
#[derive(Debug)]
pub(crate) struct OneCore {
    before: CpuSet,
    core: usize,
}

impl OneCore {
    /// The last core that this thread may use; nothing when there is only one, or the system does not tell.
    ///
    /// Measuring and measured processes share the core. They never run at the same time, the parent's sweep empties
    /// the very caches that the program will use, and no wake-up crosses cores.
    pub(crate) fn take() -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core));
        let (first, last) = (cores.next()?, cores.next_back()?);
        debug_assert!(first < last, "cores come in order");
        let mut only = CpuSet::new();
        only.set(last);
        sched_setaffinity(None, &only).ok()?;
        Some(Self { before, core: last })
    }

    /// The core.
    pub(crate) fn number(&self) -> usize {
        self.core
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Memory that replaces whatever the caches hold.
#[derive(Debug)]
pub(crate) struct CacheSweep(Vec<u64>);

impl CacheSweep {
    /// Large enough for twice the last-level cache, within reason.
    pub(crate) fn new(last_level_cache_bytes: Option<u64>) -> Self {
        let wanted = last_level_cache_bytes.map_or(DEFAULT_SWEEP_BYTES, |bytes| bytes.saturating_mul(2));
        let words = wanted.min(MAX_SWEEP_BYTES) / 8;
        Self(vec![1; usize::try_from(words).unwrap_or(0)])
    }

    /// Touches every line.
    pub(crate) fn sweep(&mut self) {
        for word in self.0.iter_mut().step_by(LINE_WORDS) {
            *word = word.wrapping_add(1);
        }
        std::hint::black_box(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_gets_its_cores_back() {
        let cores = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).count();
        let Ok(before) = sched_getaffinity(None) else { panic!("the cores of this thread") };
        if let Some(one) = OneCore::take() {
            let Ok(during) = sched_getaffinity(None) else { panic!("the cores of this thread") };
            assert_eq!(cores(&during), 1);
            assert!(during.is_set(one.number()));
        } else {
            assert_eq!(cores(&before), 1);
        }
        let Ok(after) = sched_getaffinity(None) else { panic!("the cores of this thread") };
        assert_eq!(cores(&after), cores(&before));
    }

    #[test]
    fn the_sweep_is_bounded() {
        assert_eq!(CacheSweep::new(Some(1 << 40)).0.len() * 8, 16 << 20);
        assert_eq!(CacheSweep::new(Some(1 << 20)).0.len() * 8, 2 << 20);
    }
}
