//! How fast is a program on a device? Everything that can be done before is done before: contexts, libraries and inputs
//! are in place when the device is asked for alone. What came out of the timed calls stays on the device, and some of it,
//! drawn at random, is compared afterwards.

mod known;
mod start;
mod timed;

use std::path::Path;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::{DeviceConditions, DeviceMeasurement, Interval, Measurement, TimePair};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{LARGE_CALL_BYTES, TaskSpec};
use nightshift_protocol::verdict::Finding;

use self::known::KnownJudge;
pub(crate) use self::start::stage_sets;
use self::start::{Terms, prepare};
pub(super) use self::timed::HIDDEN_NS;
use self::timed::Timed;
use super::judge::Judge;
use super::outcome::Outcome;
use super::rows::{RowTerms, RowTimes, time_rows};
use super::sample_plan::{Pair, between_processes};
use super::{CONFIDENCE, Side, failed};
use crate::check::smallest_first;
use crate::cost::Cost;
use crate::gpu::Watch;
use crate::inputs::{SecretSeeds, TensorData};
use crate::known::Subject;
use crate::runner::{Call, CallTime, Draw, Grounds, Quiet, Session, Stay, note};
use crate::statistics::{bootstrap_ratio, median};
use crate::stock::Stock;
use nightshift_sandbox::process::run_in_parallel;

/// Share of the samples that is left out at either end.
const TRIMMED: f64 = 0.1;

/// Half the width of the calls' own interval by the estimate up to which a measurement counts as precise.
const PRECISE: f64 = 0.01;

/// Samples of both programs before those that count, at least.
const WARM_UP_PAIRS: usize = 2;

/// Samples that are judged by the device's conditions together.
const BLOCK: usize = 10;

/// Blocks that may be rejected; then samples count as they are, and the measurement does not count as precise.
const MAX_REJECTED_BLOCKS: usize = 6;

/// Resamples of the interval that is reported.
const RESAMPLES: usize = 1_000;

/// Launches of a recorded graph, and what those of one program may take in nanoseconds.
const GRAPH_LAUNCHES: usize = 20;
const FEWEST_GRAPH_LAUNCHES: usize = 3;
const GRAPH_NS: f64 = 20e6;

/// The programs of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// The program in question.
    pub candidate: &'a Path,
    /// What it is compared with.
    pub baseline: &'a Path,
    /// The reference in double precision.
    pub truth: &'a Path,
    /// What the baseline is and how it was built.
    pub baseline_label: &'a str,
    /// Whether a result is to rest on it. Then everything is timed in new processes. Else what belongs to a task of `PyTorch`
    /// may be timed where it served before, in a check: a new process takes longer than all else.
    pub confirms: bool,
}

/// How long and how precisely to measure on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceMeasureOptions {
    /// Wall time of warming up, in milliseconds: clocks go up only when there is work.
    pub warm_up_ms: u64,
    /// Samples that are taken even when the precision is reached before.
    pub min_samples: usize,
    /// Most samples.
    pub max_samples: usize,
    /// Half the width of the calls' own interval by the estimate, at which sampling ends.
    pub wanted_relative_half_width: f64,
    /// Wall time of the sampling in milliseconds; the smallest number of samples may overrun it up to threefold.
    pub max_wall_ms: u64,
    /// Whether programs are also timed as recorded graphs.
    pub graphs: bool,
    /// Whether one row of calls is enough that was not disturbed and shows no more than the events around calls did.
    pub quick: bool,
    /// Bytes of inputs and outputs of one call from which on less of them is kept on the device: two sets of inputs to draw
    /// from, one timed call and one of a row to compare.
    pub large_bytes: u64,
}

impl DeviceMeasureOptions {
    /// For what every program is timed with, while nothing else may run on the device. Calls of milliseconds get few samples in
    /// that time: their interval says so, and whoever leads is confirmed.
    #[must_use]
    pub fn first() -> Self {
        Self { warm_up_ms: 15, min_samples: 10, max_wall_ms: 60, quick: true, ..Self::default() }
    }
}

impl Default for DeviceMeasureOptions {
    /// For what a result rests on.
    fn default() -> Self {
        Self {
            warm_up_ms: 30,
            min_samples: 60,
            max_samples: 600,
            wanted_relative_half_width: 0.003,
            max_wall_ms: 200,
            graphs: true,
            quick: false,
            large_bytes: LARGE_CALL_BYTES,
        }
    }
}

/// Times a program against a baseline on a device, at the default shape. Gives `Measured`, or `MeasureFailed` when the
/// program does not survive. `watch` tells how the device is. Blocks: call it from a dedicated thread.
pub fn measure_on_device(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    programs: &Programs<'_>,
    machine: &MachineFacts,
    watch: Option<&Watch>,
    require_sandbox: bool,
    options: &DeviceMeasureOptions,
) -> Result<StepOutput, StepFailure> {
    let mut cost = Cost::start();
    let default =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    // The same ones as in a check, so that a process that served there serves here.
    let all_shapes = smallest_first(spec)?;
    let number = all_shapes.iter().position(|shapes| shapes.name == default.name).unwrap_or(0);
    let seeds = SecretSeeds::from_os()
        .map_err(|error| StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))?;
    // Where processes serve again, those of a task are used by one step at a time.
    let serve_again = !programs.confirms && spec.torch.is_some();
    let subject = if serve_again { Subject::of(spec, &all_shapes, programs.baseline, programs.truth) } else { None };
    let turn = subject.and_then(|of| grounds.turn(&of, programs.baseline));
    cost.part("turn");
    let terms = Terms { shapes: &all_shapes, number, require_sandbox, large_bytes: options.large_bytes };
    let mut race = match prepare(grounds, spec, programs, seeds, terms, &mut cost) {
        Ok(race) => race,
        Err(side) => return failed(side, Vec::new()),
    };
    let quiet = if programs.confirms { Quiet::Complete } else { Quiet::OnDevice };
    let timed = match race.timed(grounds, quiet, watch, options, &mut cost) {
        Ok(timed) => timed,
        Err(side) => return failed(side, race.looks.into_findings_of_failed()),
    };
    if let Err(side) = race.compare_kept(grounds) {
        return failed(side, race.looks.into_findings_of_failed());
    }
    cost.part("comparison");
    let mut measurement = race.measurement(spec, &timed, programs.baseline_label, machine);
    cost.part("statistics");
    let Race { candidate, baseline, looks, .. } = race;
    let (findings, truth) = looks.into_parts();
    let beside = grounds.beside_others(Stay::Driver);
    cost.part("waiting");
    grounds.leave([candidate, baseline].into_iter().chain(truth));
    drop((beside, turn));
    cost.part("ends");
    measurement.cost = cost.parts();
    Ok(StepOutput::Measured { measurement: Box::new(measurement), findings })
}

/// Launches of a graph for calls of this time.
fn graph_launches(call_ns: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let by_time = (GRAPH_NS / call_ns.max(1.0)) as usize;
    by_time.clamp(FEWEST_GRAPH_LAUNCHES, GRAPH_LAUNCHES)
}

/// A timed call whose outcome is still on the device.
struct Kept {
    slot: usize,
    draw: Draw,
    /// Its number among those whose answer is known.
    known: Option<usize>,
    candidate: CallTime,
    baseline: CallTime,
}

/// What a timed call was given and left behind.
struct Fetched {
    inputs: Vec<TensorData>,
    /// The number of the draw, if its answer is known.
    known: Option<usize>,
    candidate: Call,
    /// Of the baseline, if it is not.
    baseline: Option<Call>,
}

/// Who looks at what timed calls left behind.
enum Looks<'a> {
    /// With the truth at hand, which knows nothing of their inputs yet.
    Fresh(Box<Judge<'a>>),
    /// With inputs whose answers are known.
    Known(Box<KnownJudge<'a>>),
}

impl Looks<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        match self {
            Self::Fresh(judge) => &mut judge.findings,
            Self::Known(judge) => &mut judge.findings,
        }
    }

    /// What was found until a program ended, which may have said anything as it did.
    fn into_findings_of_failed(mut self) -> Vec<Finding> {
        std::mem::take(self.findings())
    }

    /// What was found, and the process of the truth, where there is one.
    fn into_parts(self) -> (Vec<Finding>, Option<Session>) {
        match self {
            Self::Fresh(judge) => {
                let (findings, truth) = judge.into_parts();
                (findings, Some(truth))
            }
            Self::Known(judge) => (judge.into_findings(), None),
        }
    }
}

/// Two programs, side by side on one device.
struct Race<'a> {
    /// Calls of one sample.
    calls: usize,
    stock: Stock,
    candidate: Session,
    baseline: Session,
    looks: Looks<'a>,
    sets: Vec<Vec<TensorData>>,
    seeds: SecretSeeds,
    kept: Vec<Kept>,
}

/// Why samples were taken again.
const DISTURBED: &str = "calls seemed to hide time while contexts could begin and end beside them";

impl Race<'_> {
    /// Times both with the device alone. What seems to hide time beside contexts that begin and end is timed once more beside
    /// nothing at all, and that counts: memory that such a context gives back keeps the device at work. What the calls left behind is
    /// looked at before, and what those leave that count is looked at as if they were the first.
    fn timed(
        &mut self,
        grounds: &Grounds<'_>,
        quiet: Quiet,
        watch: Option<&Watch>,
        options: &DeviceMeasureOptions,
        cost: &mut Cost,
    ) -> Result<Timed, Side> {
        let alone = grounds.alone(quiet);
        cost.part("waiting");
        let first = self.alone(watch, options, cost)?;
        drop(alone);
        // Where nobody else is on the device, nobody disturbed it.
        if quiet == Quiet::Complete || grounds.gate.is_none() || first.mismatch().is_none() {
            return Ok(first);
        }
        self.compare_kept(grounds)?;
        cost.part("comparison");
        let _alone = grounds.alone(Quiet::Complete);
        cost.part("waiting");
        let mut timed = self.alone(watch, options, cost)?;
        timed.take_the_place_of(&first, DISTURBED);
        Ok(timed)
    }

    /// The part for which nothing else may run on the device.
    fn alone(&mut self, watch: Option<&Watch>, options: &DeviceMeasureOptions, cost: &mut Cost) -> Result<Timed, Side> {
        let started = Instant::now();
        let warm_up = Duration::from_millis(options.warm_up_ms);
        let mut warmed = 0;
        while warmed < WARM_UP_PAIRS || started.elapsed() < warm_up {
            let draws = self.draws();
            self.pair(&draws)?;
            warmed += 1;
        }
        cost.part("warm_up");
        let mut timed = self.samples(watch, options)?;
        cost.part("samples");
        let terms = RowTerms {
            sets: self.sets.len(),
            first_slot: self.kept.len(),
            slots: self.stock.of_rows,
            shown: timed.shown(),
            quick: options.quick,
        };
        let mut known = None;
        let mut draw_known = || {
            known = match &mut self.looks {
                Looks::Fresh(_) => None,
                Looks::Known(judge) => judge.draw_for_row(),
            };
            known.map(|(_, draw)| draw)
        };
        let (candidate, baseline) = (&mut self.candidate, &mut self.baseline);
        timed.rows = time_rows(candidate, baseline, &mut self.seeds, &terms, &mut draw_known)?;
        self.keep_of_row(&timed.rows.kept, known);
        cost.part("rows");
        if options.graphs {
            timed.graph = self.graphs(graph_launches(timed.mean_call_ns()));
            cost.part("graphs");
        }
        timed.alone = started.elapsed();
        Ok(timed)
    }

    fn samples(&mut self, watch: Option<&Watch>, options: &DeviceMeasureOptions) -> Result<Timed, Side> {
        let look = || watch.and_then(|watch| watch.sample().ok());
        let mut before = look();
        let mut timed = Timed {
            candidate: Vec::new(),
            baseline: Vec::new(),
            rows: RowTimes::default(),
            graph: None,
            conditions: before.clone(),
            rejected: 0,
            rejected_because: Vec::new(),
            steady: true,
            alone: Duration::ZERO,
            options: options.clone(),
        };
        let limit = Duration::from_millis(options.max_wall_ms);
        let started = Instant::now();
        let mut rejected_blocks = 0;
        loop {
            let kept_before = self.kept.len();
            let mut block = Vec::with_capacity(BLOCK);
            // At least one of each block, as long as there is none.
            let one_of_block = self.seeds.below(BLOCK);
            for position in 0..BLOCK {
                let mut draws = self.draws();
                // No program can tell which of its calls will be looked at.
                let due = self.seeds.draw().is_multiple_of(4) || (self.kept.is_empty() && position == one_of_block);
                let looked_at = self.kept.len() < self.stock.kept && due;
                let known = if looked_at { self.put_known(&mut draws) } else { None };
                let pair = self.pair(&draws)?;
                block.push(pair);
                if looked_at {
                    self.keep_one(&draws, known, pair)?;
                }
            }
            let after = look();
            let moved = after.as_ref().zip(before.as_ref()).and_then(|(after, before)| after.moved_since(before));
            before = after;
            if let Some(reason) = moved.filter(|_| rejected_blocks < MAX_REJECTED_BLOCKS) {
                rejected_blocks += 1;
                timed.steady = rejected_blocks < MAX_REJECTED_BLOCKS;
                timed.rejected += u32::try_from(block.len()).unwrap_or(u32::MAX);
                if !timed.rejected_because.contains(&reason) {
                    timed.rejected_because.push(reason);
                }
                self.kept.truncate(kept_before);
                continue;
            }
            timed.candidate.extend(block.iter().map(|(candidate, _)| *candidate));
            timed.baseline.extend(block.iter().map(|(_, baseline)| *baseline));
            let (count, elapsed) = (timed.candidate.len(), started.elapsed());
            let enough = count >= options.min_samples;
            if count >= options.max_samples || (enough && elapsed > limit) || elapsed > limit * super::OVERTIME {
                break;
            }
            if enough && timed.standard_half_width() <= options.wanted_relative_half_width {
                break;
            }
        }
        Ok(timed)
    }

    /// Inputs of one sample.
    fn draws(&mut self) -> Vec<Draw> {
        (0..self.calls).map(|_| Draw::new(self.sets.len(), self.seeds.draw())).collect()
    }

    /// Lets one call of a sample, which one is secret, be given inputs whose answer is known, where there are some. Gives the
    /// call and the number of the draw.
    fn put_known(&mut self, draws: &mut [Draw]) -> Option<(usize, usize)> {
        let Looks::Known(judge) = &mut self.looks else { return None };
        let (number, draw) = judge.draw_for_sample()?;
        let call = self.seeds.below(draws.len());
        *draws.get_mut(call)? = draw;
        Some((call, number))
    }

    /// One sample of each on the same inputs, in random order. Gives the times of the candidate and of the baseline.
    fn pair(&mut self, draws: &[Draw]) -> Result<(CallTime, CallTime), Side> {
        if self.seeds.flip() {
            let candidate = self.candidate.sample(draws).map_err(Side::Candidate)?;
            Ok((candidate, self.baseline.sample(draws).map_err(Side::Baseline)?))
        } else {
            let baseline = self.baseline.sample(draws).map_err(Side::Baseline)?;
            Ok((self.candidate.sample(draws).map_err(Side::Candidate)?, baseline))
        }
    }

    /// Keeps what one of the calls of the last samples left behind: the one with the known inputs, or any.
    fn keep_one(
        &mut self,
        draws: &[Draw],
        known: Option<(usize, usize)>,
        (candidate, baseline): (CallTime, CallTime),
    ) -> Result<(), Side> {
        let slot = self.kept.len();
        let call = known.map_or_else(|| self.seeds.below(draws.len()), |(call, _)| call);
        let Some(draw) = draws.get(call).copied() else { return Ok(()) };
        self.candidate.keep(call, slot).map_err(Side::Candidate)?;
        if known.is_none() {
            self.baseline.keep(call, slot).map_err(Side::Baseline)?;
        }
        self.kept.push(Kept { slot, draw, known: known.map(|(_, number)| number), candidate, baseline });
        Ok(())
    }

    /// Looks at one of the last calls of a row, too: the one with the known inputs, or any.
    fn keep_of_row(&mut self, calls: &[(usize, Draw)], known: Option<(usize, Draw)>) {
        let found = match known {
            Some((_, known)) => calls.iter().find(|(_, draw)| *draw == known),
            None => calls.get(self.seeds.below(calls.len())),
        };
        if let Some((slot, draw)) = found.copied() {
            let untimed = CallTime { inside_ns: 0, outside_ns: 0, processor_ns: None };
            let number = known.map(|(number, _)| number);
            self.kept.push(Kept { slot, draw, known: number, candidate: untimed, baseline: untimed });
        }
    }

    /// Programs that wait or allocate cannot be recorded. That breaks nothing but the recording.
    fn graphs(&mut self, launches: usize) -> Option<TimePair> {
        let baseline_ns = self.baseline.graph(launches).ok().flatten()?;
        let candidate_ns = self.candidate.graph(launches).ok().flatten()?;
        Some(TimePair { baseline_ns, candidate_ns })
    }

    /// Looks at what some timed calls left behind. One is judged while the next one is fetched.
    fn compare_kept(&mut self, grounds: &Grounds<'_>) -> Result<(), Side> {
        let Self { candidate, baseline, looks, sets, seeds, kept, .. } = self;
        let enter = |stay| grounds.beside_others(stay);
        let mut fetch = |kept: &Kept| {
            let inputs = kept.draw.inputs(sets);
            let mut beside = || baseline.fetch_known(kept.slot, kept.baseline, &enter).map_err(Side::Baseline);
            let (candidate, baseline) = run_in_parallel(
                || candidate.fetch(kept.slot, inputs.clone(), kept.candidate, &enter).map_err(Side::Candidate),
                || if kept.known.is_some() { Ok(None) } else { beside().map(Some) },
            );
            Ok(Fetched { inputs, known: kept.known, candidate: candidate?, baseline: baseline? })
        };
        let mut look = |Fetched { inputs, known, candidate, baseline }: &Fetched| {
            match (&mut *looks, known, baseline) {
                (Looks::Fresh(judge), _, Some(baseline)) => {
                    return judge.look(seeds, inputs, (candidate, baseline), &enter).map(|_| ());
                }
                (Looks::Known(judge), Some(number), _) => judge.look(*number, candidate),
                // Calls that are looked at when no inputs with known answers are left.
                (Looks::Known(judge), None, Some(baseline)) => judge.look_beside(candidate, baseline),
                (_, _, None) => {}
            }
            Ok(())
        };
        let kept = std::mem::take(kept);
        let mut fetched = None;
        for number in 0..=kept.len() {
            let (next, judged) = run_in_parallel(
                || kept.get(number).map(&mut fetch).transpose(),
                || fetched.as_ref().map_or(Ok(()), &mut look),
            );
            judged?;
            fetched = next?;
        }
        Ok(())
    }

    fn measurement(
        &mut self,
        spec: &TaskSpec,
        timed: &Timed,
        baseline_label: &str,
        machine: &MachineFacts,
    ) -> Measurement {
        if let Some(finding) = timed.mismatch() {
            note(self.looks.findings(), finding);
        }
        let (candidate, baseline) = (timed.candidate_ns(), timed.baseline_ns());
        let own = bootstrap_ratio(&baseline, &candidate, TRIMMED, CONFIDENCE, RESAMPLES);
        let scattered = own.relative_half_width() > PRECISE;
        let precise = timed.steady && candidate.len() >= timed.options.min_samples && !scattered;
        let candidate_median_ns = median(&candidate);
        let with_python = self.candidate.runs_python() || self.baseline.runs_python();
        let pair = if with_python { Pair::WithPython { scattered } } else { Pair::Native };
        let between = between_processes(candidate_median_ns.min(median(&baseline)), pair);
        let speedup = Interval { low: own.low * (1.0 - between), high: own.high * (1.0 + between), ..own };
        let (calls, sandbox) = (timed.candidate.as_slice(), self.candidate.sandbox());
        let outcome = Outcome { speedup, precise, calls, candidate_ns: &candidate, baseline_ns: &baseline, sandbox };
        let mut measurement = outcome.measurement(spec, baseline_label, machine);
        measurement.device = Some(Box::new(DeviceMeasurement {
            exclusive_ms: timed.alone.as_secs_f64() * 1e3,
            calls_per_sample: u32::try_from(self.calls).ok(),
            rows: timed.rows.pair(),
            graph: timed.graph,
            floor_ns: None,
            rejected_samples: timed.rejected,
            rejected_because: timed.rejected_because.clone(),
            conditions: timed.conditions.as_ref().map(|conditions| DeviceConditions {
                sm_clock_mhz: conditions.sm_clock_mhz,
                memory_clock_mhz: conditions.memory_clock_mhz,
                temperature_c: conditions.temperature_c,
                power_w: conditions.power_w,
            }),
        }));
        measurement
    }
}
