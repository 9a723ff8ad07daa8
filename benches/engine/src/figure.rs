//! The line that is printed.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::cost::Cost;
use crate::place::Description;

/// A figure of steps, in the form of `benches/peers`. Written down here again: that workspace is kept apart from this one,
/// so that what the peers depend on never meets what Nightshift depends on.
#[derive(Debug, Serialize)]
pub(crate) struct StepsFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    replicas: usize,
    in_flight: u32,
    workflows: u64,
    steps: u64,
    seconds: f64,
    steps_per_second: f64,
    workflow_p50_ms: f64,
    workflow_p99_ms: f64,
    wal_bytes_per_step: Option<f64>,
    commits_per_step: Option<f64>,
}

/// How long the whole and each workflow took.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    pub(crate) whole: Duration,
    pub(crate) each: Durations,
}

/// Times, shortest first.
#[derive(Debug, Clone)]
pub(crate) struct Durations(Vec<Duration>);

impl Durations {
    pub(crate) fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The shortest time that at least this percentage kept (nearest rank), in milliseconds.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        ms(self.0.get(rank - 1).copied().unwrap_or_default())
    }

    pub(crate) fn max_ms(&self) -> f64 {
        ms(self.0.last().copied().unwrap_or_default())
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) system: &'static str,
    /// Servers on the database.
    pub(crate) replicas: usize,
    pub(crate) in_flight: u32,
    pub(crate) workflows: u64,
    /// Steps in the timed part.
    pub(crate) steps: u64,
    /// Steps between the two readings of the counters.
    pub(crate) all_steps: u64,
}

impl StepsFigure {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(crate) fn new(asked: Asked, place: Description, timing: &Timing, cost: Option<Cost>) -> Self {
        let seconds = timing.whole.as_secs_f64();
        let per_step = |count: fn(Cost) -> u64| cost.map(|cost| count(cost) as f64 / asked.all_steps as f64);
        Self {
            system: asked.system,
            version: env!("CARGO_PKG_VERSION"),
            store: place.store,
            durability: place.durability,
            replicas: asked.replicas,
            in_flight: asked.in_flight,
            workflows: asked.workflows,
            steps: asked.steps,
            seconds,
            steps_per_second: asked.steps as f64 / seconds,
            workflow_p50_ms: timing.each.percentile_ms(50),
            workflow_p99_ms: timing.each.percentile_ms(99),
            wal_bytes_per_step: per_step(|cost| cost.wal_bytes),
            commits_per_step: per_step(|cost| cost.commits),
        }
    }
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// Writes one line of JSON to standard output.
pub(crate) fn print(figure: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(figure)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}
