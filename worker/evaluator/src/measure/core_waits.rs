//! Whether what is timed had to wait for a core of the host.

use std::time::{Duration, Instant};

use nightshift_sandbox::cores::waited_ns;

use crate::memory::Memory;
use crate::program::Program;

/// Most of the time for which the evaluator and the baseline together may be ready to run and wait for a core.
const MOST_SHARE: f64 = 0.05;

/// Time for which the evaluator's thread and the baseline waited for a core so far, and when that was read. The candidate's is left
/// out: its own threads can make it wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoreWaits {
    began: Instant,
    waited: Duration,
}

impl CoreWaits {
    /// Begins to count. None where the kernel does not.
    pub(super) fn begin<M: Memory>(baseline: &Program<M>) -> Option<Self> {
        Some(Self { began: Instant::now(), waited: waited(baseline)? })
    }

    /// Says why nothing counts that was timed since then, where too much of the time was spent waiting for a core.
    pub(super) fn too_many<M: Memory>(self, baseline: &Program<M>) -> Option<String> {
        too_many(waited(baseline)?.saturating_sub(self.waited), self.began.elapsed())
    }
}

fn waited<M: Memory>(baseline: &Program<M>) -> Option<Duration> {
    Some(Duration::from_nanos(waited_ns()?) + baseline.process.waited()?)
}

fn too_many(waited: Duration, elapsed: Duration) -> Option<String> {
    (waited > elapsed.mul_f64(MOST_SHARE)).then(|| {
        format!(
            "other work on the host's processor: calls waited {:.1} of {:.1} ms for a core",
            waited.as_secs_f64() * 1e3,
            elapsed.as_secs_f64() * 1e3
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_core_disturbs_only_where_it_takes_a_share_of_the_time() {
        let elapsed = Duration::from_millis(100);
        assert_eq!(too_many(Duration::from_millis(5), elapsed), None);
        let reason = too_many(Duration::from_millis(30), elapsed);
        assert_eq!(
            reason.as_deref(),
            Some("other work on the host's processor: calls waited 30.0 of 100.0 ms for a core")
        );
    }
}
