//! Finds timed windows that waited for a core of the host.

use std::time::{Duration, Instant};

use nightshift_sandbox::cores::waited_ns;

use crate::memory::Memory;
use crate::program::Program;

/// Maximum time for which the evaluator and the baseline together may wait for a core.
const MOST_SHARE: f64 = 0.05;

/// Time in windows of the baseline, and how much of it the evaluator's thread and the baseline waited for a core. Windows of the
/// candidate do not count: its own threads could make the evaluator wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CoreWaits {
    waited: Duration,
    elapsed: Duration,
}

impl CoreWaits {
    /// Counts what the baseline does in a window. Nothing is counted where the kernel does not tell.
    pub(super) fn during<M: Memory, T>(
        &mut self,
        baseline: &mut Program<M>,
        window: impl FnOnce(&mut Program<M>) -> T,
    ) -> T {
        let (began, before) = (Instant::now(), waited(baseline));
        let done = window(baseline);
        if let Some((before, after)) = before.zip(waited(baseline)) {
            self.waited += after.saturating_sub(before);
            self.elapsed += began.elapsed();
        }
        done
    }

    /// Returns what disturbed the windows, where too much of their time was spent waiting for a core.
    pub(super) fn disturbance(self) -> Option<String> {
        (self.waited > self.elapsed.mul_f64(MOST_SHARE)).then(|| {
            format!(
                "other work on the host's processor: the reference waited {:.1} of {:.1} ms for a core",
                self.waited.as_secs_f64() * 1e3,
                self.elapsed.as_secs_f64() * 1e3
            )
        })
    }
}

fn waited<M: Memory>(baseline: &Program<M>) -> Option<Duration> {
    Some(Duration::from_nanos(waited_ns()?) + baseline.process.waited()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_core_disturbs_only_where_it_takes_a_share_of_the_time() {
        let waits = |waited| CoreWaits { waited: Duration::from_millis(waited), elapsed: Duration::from_millis(100) };
        assert_eq!(waits(5).disturbance(), None);
        let said = "other work on the host's processor: the reference waited 30.0 of 100.0 ms for a core";
        assert_eq!(waits(30).disturbance().as_deref(), Some(said));
        assert_eq!(CoreWaits::default().disturbance(), None);
    }
}
