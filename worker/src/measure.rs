//! How fast is a program? Candidate and baseline are timed call by call, side by side, on fresh inputs, and the results
//! of the timed calls themselves are compared.

mod conditions;
mod device;
mod floor;
mod judge;
mod outcome;
mod rows;
mod sample_plan;
mod samples;
mod witness;

use std::path::Path;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{ConcreteShapes, TaskSpec};
use nightshift_protocol::verdict::{Finding, Severity};
use nightshift_toolchain::Host;

pub(crate) use self::conditions::{CacheSweep, OneCore};
pub(crate) use self::device::stage_sets;
pub use self::device::{DeviceMeasureOptions, Programs, measure_on_device};
pub(crate) use self::floor::{add_floor, floor_ns};
use self::judge::Judge;
use self::outcome::Outcome;
use self::samples::Samples;
use crate::inputs::{InputKind, SecretSeeds, generate_all};
use crate::runner::{Call, CallTime, Session, SessionError, SessionOptions, note};
use crate::statistics::bootstrap_median;
use nightshift_sandbox::Queues;
use nightshift_sandbox::process::CancelFlag;

/// Confidence level of the interval.
const CONFIDENCE: f64 = 0.95;

/// Resamples of the interval that is reported.
const RESAMPLES: usize = 2_000;

/// Resamples of the interval that decides whether to go on.
const INTERIM_RESAMPLES: usize = 300;

/// Samples between two looks at the interval.
const LOOK_EVERY: usize = 4;

/// What differs from process to process and not from call to call, as a share: where pages and tables happen to lie. No
/// number of samples of one pair of processes shows it; pairs of one and the same program scatter by about this much
/// when the calls are short. The interval that is reported is wider by it on both sides.
const BETWEEN_PROCESSES: f64 = 0.01;

/// Calls of each program before the first sample.
const WARM_UP_CALLS: usize = 2;

/// Below this, sampling goes on whatever the time limit says.
const FEWEST_SAMPLES: usize = 3;

/// Past this many times the time limit, even the wanted smallest number of samples is given up.
const OVERTIME: u32 = 3;

/// Timed calls with wrong results after which sampling ends.
const MAX_WRONG_CALLS: usize = 3;

/// The baseline's patience, as in a check.
const PATIENCE: u64 = 4;

/// How long and how precisely to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureOptions {
    /// Samples that are taken even when the precision is reached before.
    pub min_samples: usize,
    /// Most samples.
    pub max_samples: usize,
    /// Half the width of the calls' own interval by the estimate, at which the measurement is precise.
    pub wanted_relative_half_width: f64,
    /// Wall time of the sampling in milliseconds; a slow baseline may overrun it up to threefold.
    pub max_wall_ms: u64,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self { min_samples: 11, max_samples: 151, wanted_relative_half_width: 0.02, max_wall_ms: 1_800 }
    }
}

/// Times a program against a baseline at the default shape. Gives `Measured`, or `MeasureFailed` when the program does
/// not survive. Blocks, and keeps to one core: call it from a dedicated thread.
#[expect(clippy::too_many_arguments, reason = "each is a fact of its own that the caller has at hand")]
pub fn measure(
    host: &Host,
    spec: &TaskSpec,
    candidate: &Path,
    reference: &Path,
    truth: &Path,
    machine: &MachineFacts,
    baseline_label: &str,
    require_sandbox: bool,
    options: &MeasureOptions,
    cancel: &CancelFlag,
) -> Result<StepOutput, StepFailure> {
    let shapes =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let seeds = SecretSeeds::from_os()
        .map_err(|error| StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))?;
    let core = OneCore::take();
    let start = |library: &Path, double: bool, patience: u64, require_sandbox: bool| {
        let options = SessionOptions {
            library,
            torch: spec.torch.as_ref(),
            shapes: std::slice::from_ref(&shapes),
            double,
            memory_bytes: spec.limits.memory_bytes.saturating_mul(patience),
            call_timeout_ms: spec.limits.call_timeout_ms.saturating_mul(patience),
            core: core.as_ref().map(OneCore::number),
            require_sandbox,
            device: None,
            queues: Queues::Usual,
            stock_bytes: 0,
        };
        Session::start(host, &options, cancel)
    };
    let trusted = |library: &Path, double: bool| start(library, double, PATIENCE, false).map_err(Side::Baseline);
    let sessions = start(candidate, false, 1, require_sandbox)
        .map_err(Side::Candidate)
        .and_then(|candidate| Ok((candidate, trusted(reference, false)?, trusted(truth, true)?)))
        .map(|(candidate, mut baseline, truth)| {
            if baseline.runs_python() && !candidate.runs_python() {
                baseline.discount_delivery();
            }
            (candidate, baseline, truth)
        });
    let mut race = match sessions {
        Ok((candidate, baseline, truth)) => Race {
            candidate,
            baseline,
            judge: Judge::new(truth, spec, &shapes),
            shapes: &shapes,
            sweep: CacheSweep::new(machine.last_level_cache_bytes),
            seeds,
            samples: Samples::default(),
            wrong_calls: 0,
        },
        Err(side) => return failed(side, Vec::new()),
    };
    match race.run(options) {
        Ok(speedup) => {
            if let Some(finding) = race.samples.mismatch() {
                note(&mut race.judge.findings, finding);
            }
            let precise = race.samples.len() >= options.min_samples
                && speedup.relative_half_width() <= options.wanted_relative_half_width;
            let speedup = Interval {
                low: speedup.low * (1.0 - BETWEEN_PROCESSES),
                high: speedup.high * (1.0 + BETWEEN_PROCESSES),
                ..speedup
            };
            let measurement = race.measurement(spec, speedup, precise, baseline_label, machine);
            Ok(StepOutput::Measured { measurement: Box::new(measurement), findings: race.judge.findings })
        }
        Err(side) => failed(side, race.judge.findings),
    }
}

/// Whose process ended.
enum Side {
    Candidate(SessionError),
    Baseline(SessionError),
}

fn failed(side: Side, findings: Vec<Finding>) -> Result<StepOutput, StepFailure> {
    match side {
        Side::Candidate(error) => Ok(StepOutput::MeasureFailed { end: error.into_end()?, findings }),
        Side::Baseline(error) => {
            let end = error.into_end()?;
            Err(StepFailure::retriable("reference.failed", format!("the baseline broke down: {}", end.describe())))
        }
    }
}

/// Two programs, side by side.
struct Race<'a> {
    candidate: Session,
    baseline: Session,
    judge: Judge<'a>,
    shapes: &'a ConcreteShapes,
    sweep: CacheSweep,
    seeds: SecretSeeds,
    samples: Samples,
    wrong_calls: usize,
}

impl Race<'_> {
    fn run(&mut self, options: &MeasureOptions) -> Result<Interval, Side> {
        let params = generate_all(&self.shapes.params, self.seeds.draw(), InputKind::Declared);
        self.candidate.init(&params).map_err(Side::Candidate)?;
        self.baseline.init(&params).map_err(Side::Baseline)?;
        self.judge.init(&params, &|_| None)?;
        for _ in 0..WARM_UP_CALLS {
            self.sample()?;
        }
        let limit = Duration::from_millis(options.max_wall_ms);
        let started = Instant::now();
        loop {
            let (candidate, baseline) = self.sample()?;
            self.samples.push(candidate, baseline);
            let (count, elapsed) = (self.samples.len(), started.elapsed());
            let enough = count >= options.min_samples;
            if count >= options.max_samples.max(FEWEST_SAMPLES) || self.wrong_calls >= MAX_WRONG_CALLS {
                break;
            }
            if count >= FEWEST_SAMPLES && ((enough && elapsed > limit) || elapsed > limit * OVERTIME) {
                break;
            }
            if enough && count % LOOK_EVERY == 0 {
                let interim = bootstrap_median(&self.samples.ratios(), CONFIDENCE, INTERIM_RESAMPLES);
                if interim.relative_half_width() <= options.wanted_relative_half_width {
                    break;
                }
            }
        }
        Ok(bootstrap_median(&self.samples.ratios(), CONFIDENCE, RESAMPLES))
    }

    /// One call of each on the same fresh inputs, in random order, and a look at what came out.
    fn sample(&mut self) -> Result<(CallTime, CallTime), Side> {
        let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        self.candidate.prepare(&inputs, false);
        self.baseline.prepare(&inputs, false);
        let (candidate, baseline) = if self.seeds.flip() {
            let candidate = self.time_candidate()?;
            (candidate, self.time_baseline()?)
        } else {
            let baseline = self.time_baseline()?;
            (self.time_candidate()?, baseline)
        };
        self.wrong_calls += self.judge.look(&mut self.seeds, &inputs, (&candidate, &baseline), &|_| None)?;
        Ok((candidate.time, baseline.time))
    }

    fn time_candidate(&mut self) -> Result<Call, Side> {
        self.sweep.sweep();
        let time = self.candidate.call().map_err(Side::Candidate)?;
        Ok(self.candidate.collect(time))
    }

    fn time_baseline(&mut self) -> Result<Call, Side> {
        self.sweep.sweep();
        let time = self.baseline.call().map_err(Side::Baseline)?;
        Ok(self.baseline.collect(time))
    }

    fn measurement(
        &self,
        spec: &TaskSpec,
        speedup: Interval,
        precise: bool,
        baseline_label: &str,
        machine: &MachineFacts,
    ) -> Measurement {
        let (candidate, baseline) = (self.samples.candidate_ns(), self.samples.baseline_ns());
        let (calls, sandbox) = (self.samples.candidate.as_slice(), self.candidate.sandbox());
        let outcome = Outcome { speedup, precise, calls, candidate_ns: &candidate, baseline_ns: &baseline, sandbox };
        outcome.measurement(spec, baseline_label, machine)
    }
}

fn violation(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Violation, message, line: None }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and a cast saturates")]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}
