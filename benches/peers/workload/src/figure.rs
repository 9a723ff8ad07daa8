//! The line that an adapter prints.

use std::io::Write as _;

use serde::Serialize;

use crate::{Load, STEPS_PER_WORKFLOW, Timing};

/// What was measured: the engine and how durable its commits were.
#[derive(Debug, Clone)]
pub struct System {
    /// Name of the engine.
    pub name: &'static str,
    /// Its exact version.
    pub version: String,
    /// What keeps its state.
    pub store: String,
    /// The durability settings as the store itself reports them.
    pub durability: String,
}

/// What the steps cost the database.
#[derive(Debug, Clone, Copy)]
pub struct PostgresCost {
    /// Bytes of write-ahead log written.
    pub wal_bytes: u64,
    /// Transactions committed, those that only read included.
    pub commits: u64,
    /// Steps that ran between the two readings, the warm-up of the pool included.
    pub steps: u64,
}

/// One result, in the form that every adapter shares.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    system: &'static str,
    version: String,
    store: String,
    durability: String,
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

impl Figure {
    /// Brings together what ran and how long it took.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub fn new(system: System, load: Load, timing: &Timing, cost: Option<PostgresCost>) -> Self {
        let steps = load.workflows.get() * STEPS_PER_WORKFLOW;
        let seconds = timing.whole.as_secs_f64();
        let per_step = |count: fn(PostgresCost) -> u64| cost.map(|cost| count(cost) as f64 / cost.steps as f64);
        Self {
            system: system.name,
            version: system.version,
            store: system.store,
            durability: system.durability,
            in_flight: load.in_flight.get(),
            workflows: load.workflows.get(),
            steps,
            seconds,
            steps_per_second: steps as f64 / seconds,
            workflow_p50_ms: timing.percentile(50).as_secs_f64() * 1_000.0,
            workflow_p99_ms: timing.percentile(99).as_secs_f64() * 1_000.0,
            wal_bytes_per_step: per_step(|cost| cost.wal_bytes),
            commits_per_step: per_step(|cost| cost.commits),
        }
    }

    /// Writes the result to standard output as one line of JSON.
    pub fn print(&self) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        std::io::stdout().lock().write_all(&line)
    }
}
