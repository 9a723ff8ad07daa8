//! Running workflows with a fixed number in flight.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::STEPS_PER_WORKFLOW;

/// Why a drive ended early.
#[derive(Debug, thiserror::Error)]
pub enum DriveError<E> {
    /// The engine refused or failed a workflow.
    #[error("workflow {input} failed: {source}")]
    Failed {
        /// What the workflow was given.
        input: u64,
        /// What the engine said.
        source: E,
    },
    /// A workflow answered, but not with its input plus one for each step.
    #[error("workflow {input} answered {answer} instead of {}", input + STEPS_PER_WORKFLOW)]
    WrongAnswer {
        /// What the workflow was given.
        input: u64,
        /// What came back.
        answer: u64,
    },
    /// A task of the driver itself was lost.
    #[error("a task of the driver was lost: {0}")]
    Lost(#[from] tokio::task::JoinError),
}

/// How long the whole and each workflow took.
#[derive(Debug, Clone)]
pub struct Timing {
    /// From the first start to the last result.
    pub whole: Duration,
    /// Start to result of each workflow, shortest first.
    pub each: Vec<Duration>,
}

impl Timing {
    /// The shortest time that at least this percentage of the workflows kept (nearest rank).
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.each.len() * percent).div_ceil(100).max(1);
        self.each.get(rank - 1).copied().unwrap_or_default()
    }
}

/// Runs this many workflows, starting the next whenever one of those in flight has answered.
///
/// `run` gets the workflow's input and answers its result; the drive stops at the first wrong one.
pub async fn drive<E, F, Fut>(in_flight: NonZeroU32, workflows: u64, run: F) -> Result<Timing, DriveError<E>>
where
    E: Send + 'static,
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64, E>> + Send,
{
    let run = Arc::new(run);
    let next = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let lanes: Vec<_> = (0..in_flight.get())
        .map(|_| {
            let (run, next) = (Arc::clone(&run), Arc::clone(&next));
            tokio::spawn(async move {
                let mut each = Vec::new();
                loop {
                    let input = next.fetch_add(1, Ordering::Relaxed);
                    if input >= workflows {
                        return Ok(each);
                    }
                    let start = Instant::now();
                    let answer = run(input).await.map_err(|source| DriveError::Failed { input, source })?;
                    each.push(start.elapsed());
                    if answer != input + STEPS_PER_WORKFLOW {
                        return Err(DriveError::WrongAnswer { input, answer });
                    }
                }
            })
        })
        .collect();
    let mut each = Vec::new();
    for lane in lanes {
        each.extend(lane.await??);
    }
    let whole = begin.elapsed();
    each.sort_unstable();
    Ok(Timing { whole, each })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use super::*;

    const LANES: NonZeroU32 = NonZeroU32::new(4).unwrap();

    #[tokio::test]
    async fn every_workflow_runs_once_and_never_more_than_asked_at_a_time() {
        let now = Arc::new(AtomicU64::new(0));
        let most = Arc::new(AtomicU64::new(0));
        let (now_in, most_in) = (Arc::clone(&now), Arc::clone(&most));
        let timing = drive(LANES, 50, move |input| {
            let (now, most) = (Arc::clone(&now_in), Arc::clone(&most_in));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, std::io::Error>(input + STEPS_PER_WORKFLOW)
            }
        })
        .await
        .unwrap();
        assert_eq!(timing.each.len(), 50);
        assert!((1..=4).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_wrong_answer_ends_the_drive() {
        let outcome = drive(LANES, 50, |input| async move {
            Ok::<_, std::io::Error>(if input == 30 { 30 } else { input + STEPS_PER_WORKFLOW })
        })
        .await;
        assert!(matches!(outcome, Err(DriveError::WrongAnswer { input: 30, answer: 30 })), "{outcome:?}");
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let each: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let timing = Timing { whole: Duration::from_secs(1), each };
        assert_eq!(timing.percentile(50), Duration::from_millis(100));
        assert_eq!(timing.percentile(99), Duration::from_millis(198));
        let one = Timing { whole: Duration::ZERO, each: vec![Duration::from_millis(7)] };
        assert_eq!(one.percentile(50), Duration::from_millis(7));
    }
}
