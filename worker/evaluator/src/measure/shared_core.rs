//! Chooses a core of the host for the programs that are timed, one on whose physical core nothing else computes.
//!
//! A core of a virtual machine is often one of two hardware threads of a physical core, and another virtual machine may use the other
//! thread. While it computes, a model that is bound by launches takes up to twice as long. The evaluator detects this by a short probe,
//! which keeps all units of a core busy and takes longer when the core is shared.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nightshift_sandbox::cores::OneCore;

use crate::cores::TimedCores;

/// Rounds of the work, which take about ten microseconds, and how often it is repeated: an interrupt lengthens one time.
const ROUNDS: u64 = 10_000;
const REPEATS: usize = 3;

/// A core is shared when the work takes this many times as long as at best. On a core by itself it varies by a tenth; where the other
/// thread computes it takes a third longer or more.
const SHARED: f64 = 1.2;

/// Maximum total time that a pair of processes waits for an unused core.
const PATIENCE: Duration = Duration::from_millis(300);

/// The shortest time of the work on this machine so far, in nanoseconds.
static BEST_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// The result of a search for a core.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// Whether the programs have to be moved.
    pub(super) is_another: bool,
    /// Whether no core was found that nothing else computes on.
    pub(super) is_shared: bool,
}

/// Whether all cores were looked at.
static LOOKED: OnceLock<()> = OnceLock::new();

/// The cores for the programs of one pair of processes.
#[derive(Debug)]
pub(super) struct ProgramCores {
    /// The first one is in use. Empty where no cores are reserved: then nothing is chosen.
    cores: Vec<usize>,
    patience: Duration,
}

impl ProgramCores {
    /// The cores for a pair of processes, by its number.
    pub(super) fn of(reserved: Option<&TimedCores>, pair: usize) -> Self {
        let Some(reserved) = reserved else { return Self { cores: Vec::new(), patience: Duration::ZERO } };
        // The best time needs a core that nothing else computes on, and one of all is soon found.
        LOOKED.get_or_init(|| {
            for core in reserved.all() {
                for _ in 0..REPEATS {
                    is_shared(core);
                }
            }
        });
        Self { cores: reserved.of_programs(pair), patience: PATIENCE }
    }

    /// The cores, that for the programs' first threads first.
    pub(super) fn in_order(&self) -> &[usize] {
        &self.cores
    }

    /// Looks for a core by itself, for a limited time. The one in use is kept where nothing else computes on it.
    pub(super) fn choose(&mut self) -> Choice {
        if self.cores.is_empty() {
            return Choice { is_another: false, is_shared: false };
        }
        let started = Instant::now();
        let own = loop {
            match self.cores.iter().position(|core| !is_shared(*core)) {
                None if started.elapsed() < self.patience => {}
                own => break own,
            }
        };
        self.patience = self.patience.saturating_sub(started.elapsed());
        if let Some(own) = own {
            self.cores.swap(0, own);
        }
        Choice { is_another: own.is_some_and(|own| own > 0), is_shared: own.is_none() }
    }

    /// Returns whether it is worth while to look for a core by itself again.
    pub(super) fn has_patience(&self) -> bool {
        !self.patience.is_zero()
    }

    /// Returns whether something else computes on the core in use. No program may run meanwhile.
    pub(super) fn is_shared(&self) -> bool {
        self.cores.first().is_some_and(|core| is_shared(*core))
    }
}

/// Returns whether something else computes on this core now.
fn is_shared(core: usize) -> bool {
    let Some(_core) = OneCore::take(core) else { return false };
    let time = |_| {
        let started = Instant::now();
        work();
        u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    let now = (0..REPEATS).map(time).min().unwrap_or(u64::MAX);
    let best = BEST_NS.fetch_min(now, Ordering::Relaxed).min(now);
    tracing::trace!(core, now, best, "looked at a core");
    takes_longer(now, best)
}

#[expect(clippy::cast_precision_loss, reason = "a few microseconds")]
fn takes_longer(now_ns: u64, best_ns: u64) -> bool {
    now_ns as f64 > best_ns as f64 * SHARED
}

/// Independent chains of simple operations, which keep all units of a core busy.
fn work() {
    let mut chains = [1_u64, 2, 3, 4, 5, 6, 7, 8];
    for round in 0..ROUNDS {
        for chain in &mut chains {
            *chain = black_box(chain.rotate_left(5).wrapping_add(round));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_on_which_work_takes_much_longer_than_at_best_is_shared() {
        for (now_ns, best_ns, shared) in [(16_400, 16_400, false), (18_300, 16_400, false), (24_600, 16_400, true)] {
            assert_eq!(takes_longer(now_ns, best_ns), shared, "{now_ns}");
        }
    }

    #[test]
    fn without_reserved_cores_nothing_is_chosen() {
        let mut cores = ProgramCores::of(None, 0);
        let choice = cores.choose();
        assert!(!choice.is_another && !choice.is_shared && !cores.is_shared() && !cores.has_patience());
    }

    #[test]
    fn a_core_in_use_is_kept_or_the_patience_ends() {
        let all = nightshift_sandbox::cores::allowed();
        let mut cores = ProgramCores { cores: all.clone(), patience: PATIENCE };
        for _ in 0..20 {
            let (before, choice) = (cores.cores[0], cores.choose());
            assert_eq!(choice.is_another, cores.cores[0] != before);
            assert!(!choice.is_shared || !cores.has_patience());
        }
        cores.cores.sort_unstable();
        assert_eq!(cores.cores, all, "no core is lost");
    }
}
