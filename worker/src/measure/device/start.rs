//! Everything before the first timed call: processes, contexts, libraries and inputs.

use nightshift_protocol::task::{ConcreteShapes, LARGE_CALL_BYTES, TaskSpec};

use super::known::{KnownJudge, KnownSamples, Shelf, Shelved};
use super::{Looks, Programs, Race};
use crate::cost::Cost;
use crate::inputs::{InputKind, SecretSeeds, TensorData, generate_all};
use crate::measure::judge::Judge;
use crate::measure::rows::make_room;
use crate::measure::sample_plan::calls_per_sample;
use crate::measure::samples::inside;
use crate::measure::{PATIENCE, Side};
use crate::runner::{Call, Draw, Enter, Grounds, RowSlots, Session, SessionError, SessionOptions, Stay};
use crate::statistics::median;
use crate::stock::Stock;
use nightshift_sandbox::Queues;
use nightshift_sandbox::process::{ProcessError, run_in_parallel};

/// Lone calls of each program that tell how many calls a sample is to have.
const PILOTS: usize = 5;

/// On which terms processes are started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    /// Every shape of the task.
    pub(super) shapes: &'a [ConcreteShapes],
    /// The number of the one that is timed.
    pub(super) number: usize,
    /// Load the candidate nowhere but where files and network are out of reach.
    pub(super) require_sandbox: bool,
    /// See [`DeviceMeasureOptions`](super::DeviceMeasureOptions).
    pub(super) large_bytes: u64,
}

/// Starts everything, side by side where it takes its time, and puts inputs in place.
pub(super) fn prepare<'a>(
    grounds: &Grounds<'a>,
    spec: &'a TaskSpec,
    programs: &Programs<'_>,
    mut seeds: SecretSeeds,
    terms: Terms<'a>,
    cost: &mut Cost,
) -> Result<Race<'a>, Side> {
    let shapes = &terms.shapes[terms.number];
    let stock = Stock::of(shapes, terms.large_bytes);
    let shelf = if programs.confirms {
        None
    } else {
        Shelf::of(grounds, spec, (terms.shapes, shapes), (programs.baseline, programs.truth), stock)
    };
    let (params, sets) = match &shelf {
        Some((_, Shelved::Known(samples))) => (samples.params.clone(), samples.sets.clone()),
        // That takes a while, and nobody who times has to wait for it.
        Some((_, Shelved::Room(_))) | None => {
            let params = generate_all(&shapes.params, seeds.draw(), InputKind::Declared);
            let set = |_| generate_all(&shapes.inputs, seeds.draw(), InputKind::Declared);
            (params, (0..stock.sets).map(set).collect::<Vec<_>>())
        }
    };
    cost.part("inputs");
    let needs_truth = !matches!(shelf, Some((_, Shelved::Known(_))));
    let Processes { mut candidate, mut baseline, truth } = start(grounds, spec, programs, terms, needs_truth, cost)?;
    let enter = |stay| grounds.beside_others(stay);
    let stock_bytes = stock.bytes(shapes, terms.large_bytes);
    let given = (&params[..], &sets[..], stock_bytes);
    let (begun, baseline_begun) = run_in_parallel(
        || begin(&mut candidate, Session::run_within, given, &enter).map_err(Side::Candidate),
        || begin(&mut baseline, Session::run_known, given, &enter).map_err(Side::Baseline),
    );
    let first = begun?;
    baseline_begun?;
    let given = (params, &sets[..]);
    let mut looks = looks_of((spec, shapes), given, (&mut baseline, truth), shelf, (&mut seeds, stock), grounds)?;
    if let Some(first) = &first {
        match &mut looks {
            Looks::Fresh(judge) => judge.note_breaches(first),
            Looks::Known(judge) => judge.note_breaches(first),
        }
    }
    let _beside = grounds.beside_others(Stay::Short);
    let calls = {
        let (mut candidate_ns, mut baseline_ns) = (Vec::new(), Vec::new());
        for _ in 0..PILOTS {
            let draw = [Draw::new(sets.len(), seeds.draw())];
            candidate_ns.push(inside(candidate.sample(&draw).map_err(Side::Candidate)?));
            baseline_ns.push(inside(baseline.sample(&draw).map_err(Side::Baseline)?));
        }
        calls_per_sample(median(&candidate_ns), median(&baseline_ns), candidate.slot_bytes())
    };
    candidate.rotate(calls).map_err(Side::Candidate)?;
    baseline.rotate(calls).map_err(Side::Baseline)?;
    let slots = RowSlots { first: stock.kept, count: stock.of_rows };
    make_room(&mut candidate, &mut baseline, &mut seeds, (sets.len(), slots))?;
    cost.part("first_calls");
    Ok(Race { calls, stock, candidate, baseline, looks, sets, seeds, kept: Vec::new() })
}

/// Who looks at what timed calls leave behind: by answers that are known, or become known to those who follow, or else with the
/// truth at hand.
fn looks_of<'a>(
    (spec, shapes): (&'a TaskSpec, &'a ConcreteShapes),
    (params, sets): (Vec<TensorData>, &[Vec<TensorData>]),
    (baseline, truth): (&mut Session, Option<Session>),
    shelf: Option<(Shelf<'a>, Shelved)>,
    (seeds, stock): (&mut SecretSeeds, Stock),
    grounds: &Grounds<'_>,
) -> Result<Looks<'a>, Side> {
    let known = |shelf, samples| Ok(Looks::Known(Box::new(KnownJudge::new(shelf, (spec, shapes), samples))));
    let room = match shelf {
        Some((shelf, Shelved::Known(samples))) => return known(shelf, samples),
        Some((shelf, Shelved::Room(reserved))) => Some((shelf, reserved)),
        None => None,
    };
    let mut truth = truth.ok_or_else(|| {
        let missing = ProcessError::Setup("the truth was not started".to_owned());
        Side::Baseline(missing.into())
    })?;
    let enter = |stay| grounds.beside_others(stay);
    if let Some((shelf, reserved)) = room {
        truth.init_within(&params, &enter).map_err(Side::Baseline)?;
        let (both, given) = ((baseline, &mut truth), (params.clone(), sets.to_vec()));
        let samples = KnownSamples::ask(both, (spec, shapes), given, (seeds, stock.looks()), &enter);
        let samples = samples.map_err(Side::Baseline)?;
        // Where the reference has no finite answer to some inputs, nobody would look at enough calls.
        if samples.draws.len() == stock.looks() {
            let samples = shelf.keep(samples, reserved);
            let _beside = grounds.beside_others(Stay::Driver);
            grounds.leave([truth]);
            return known(shelf, samples);
        }
    }
    let mut judge = Judge::new(truth, spec, shapes);
    judge.init(&params, &enter)?;
    Ok(Looks::Fresh(Box::new(judge)))
}

/// The processes of a measurement.
struct Processes {
    candidate: Session,
    baseline: Session,
    truth: Option<Session>,
}

/// Starts the processes, or takes those that wait, at the shape that is timed.
fn start(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    programs: &Programs<'_>,
    terms: Terms<'_>,
    needs_truth: bool,
    cost: &mut Cost,
) -> Result<Processes, Side> {
    let Terms { number, shapes: all_shapes, .. } = terms;
    let shapes = &all_shapes[number];
    let options = |library, double, patience: u64| SessionOptions {
        library,
        torch: spec.torch.as_ref(),
        shapes: all_shapes,
        double,
        memory_bytes: spec.limits.memory_bytes.saturating_mul(patience),
        call_timeout_ms: spec.limits.call_timeout_ms.saturating_mul(patience),
        core: None,
        require_sandbox: false,
        device: grounds.device,
        queues: match (double, programs.confirms) {
            (true, _) => Queues::One,
            (false, true) => Queues::Usual,
            (false, false) => Queues::OneForCopies,
        },
        stock_bytes: Stock::of(shapes, terms.large_bytes).bytes(shapes, terms.large_bytes),
    };
    let beside = grounds.beside_others(Stay::Driver);
    cost.part("waiting");
    let of_candidate =
        SessionOptions { require_sandbox: terms.require_sandbox, ..options(programs.candidate, false, 1) };
    // Where nothing is decided, processes of tasks of PyTorch may serve again: how they differ is little beside how the calls
    // of a Python do, and a Python is slow to start.
    let may_serve_again = !programs.confirms && spec.torch.is_some();
    let candidate = if may_serve_again {
        grounds.launch_checked(&of_candidate)
    } else {
        grounds.launch(&SessionOptions { shapes: std::slice::from_ref(shapes), ..of_candidate })
    };
    // Else a process of its own, as the candidate has: where code and data of a process happen to lie costs or spares each call
    // a share of a microsecond, and an unlucky process that served all measurements would make candidates look faster.
    let of_baseline = options(programs.baseline, false, PATIENCE);
    let baseline = if may_serve_again {
        grounds.launch_again(&of_baseline)
    } else {
        grounds.launch(&SessionOptions { shapes: std::slice::from_ref(shapes), ..of_baseline })
    };
    let truth = needs_truth.then(|| grounds.launch_again(&options(programs.truth, true, PATIENCE)));
    cost.part("processes");
    let (beside, candidate, baseline, truth) = if let Some(truth) = truth {
        let (beside, [candidate, baseline, truth]) = grounds.ready(beside, [candidate, baseline, truth]);
        (beside, candidate, baseline, Some(truth))
    } else {
        let (beside, [candidate, baseline]) = grounds.ready(beside, [candidate, baseline]);
        (beside, candidate, baseline, None)
    };
    let mut candidate = candidate.map_err(Side::Candidate)?;
    let mut baseline = baseline.map_err(Side::Baseline)?;
    let mut truth = truth.transpose().map_err(Side::Baseline)?;
    if let Some(truth) = &mut truth {
        truth.select(number).map_err(Side::Baseline)?;
    }
    if may_serve_again {
        candidate.select(number).map_err(Side::Candidate)?;
        baseline.select(number).map_err(Side::Baseline)?;
    }
    // From here on a place is taken for each request.
    drop(beside);
    cost.part("contexts");
    Ok(Processes { candidate, baseline, truth })
}

/// Loads a program, hands it the weights and puts inputs in place. Gives its first call, which finds out what every first
/// call has to, and puts poison and guards in place.
fn begin(
    session: &mut Session,
    run: impl Fn(&mut Session, &[TensorData], Enter<'_, '_>) -> Result<Call, SessionError>,
    (params, sets, stock_bytes): (&[TensorData], &[Vec<TensorData>], u64),
    enter: Enter<'_, '_>,
) -> Result<Option<Call>, SessionError> {
    if stock_bytes > 0 {
        let _place = enter(Stay::Driver);
        session.hold(stock_bytes)?;
    }
    session.init_within(params, enter)?;
    let first = sets.first().map(|set| run(session, set, enter)).transpose()?;
    for (number, set) in sets.iter().enumerate() {
        session.stage_within(number, set, enter)?;
    }
    Ok(first)
}

/// Inputs on the device to draw from, the same for every session that is given the same seeds.
pub(crate) fn stage_sets(
    session: &mut Session,
    shapes: &ConcreteShapes,
    seeds: &mut SecretSeeds,
) -> Result<Vec<Vec<TensorData>>, SessionError> {
    let sets: Vec<Vec<TensorData>> = (0..Stock::of(shapes, LARGE_CALL_BYTES).sets)
        .map(|_| generate_all(&shapes.inputs, seeds.draw(), InputKind::Declared))
        .collect();
    if let Some(first) = sets.first() {
        session.run(first)?;
    }
    for (number, set) in sets.iter().enumerate() {
        session.stage(number, set)?;
    }
    Ok(sets)
}
