//! Weights of a measurement, and the reference's own error under them.

use nightshift_protocol::task::{ConcreteShapes, LARGE_CALL_BYTES, TaskSpec};

use super::Side;
use crate::check::{Limits, ReferenceError, SMALLEST_REFERENCE_ERROR, all_finite, compare_outputs, rounding_error};
use crate::draw::{Draw, InputKind};
use crate::memory::{Memory, Operand};
use crate::program::{Program, ProgramError};
use crate::seeds::SecretSeeds;

/// Sets of inputs by which the reference's own error is found.
const ERROR_SETS: usize = 2;

/// Weights that are scaled until they matter.
const SCALED_WEIGHTS: usize = 4;

/// Factors by which they are scaled.
const SCALES: [f32; 4] = [1.0, 8.0, 64.0, 512.0];

/// A weight matters when the outputs change by so many tolerances.
const MATTERS: f64 = 8.0;

/// Draws weights of which some matter that otherwise would not: a program that leaves a small weight out while it is timed is
/// found. Their outputs are finite.
pub(super) fn weights<M: Memory>(
    memory: &M,
    spec: &TaskSpec,
    shapes: &ConcreteShapes,
    baseline: &mut Program<M>,
    seeds: &mut SecretSeeds,
) -> Result<Vec<Draw>, ProgramError> {
    let mut weights = Draw::all(shapes.params.len(), seeds.draw(), InputKind::Declared);
    let inputs = Draw::all(shapes.inputs.len(), seeds.draw(), InputKind::Declared);
    let call = |baseline: &mut Program<M>, weights: &[Draw]| -> Result<bool, ProgramError> {
        baseline.init(memory, weights)?;
        baseline.call_on(memory, &inputs)?;
        for output in baseline.outputs(0) {
            if !memory.is_finite(output)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if !call(baseline, &weights)? || weights.is_empty() {
        return Ok(weights);
    }
    let usual = baseline.keep_outputs(memory, 0)?;
    for _ in 0..SCALED_WEIGHTS.min(weights.len()) {
        let number = seeds.below(weights.len());
        let declared = weights[number];
        if shapes.params[number].dtype == nightshift_protocol::task::DType::I32 {
            continue;
        }
        let seed = seeds.draw();
        let mut found = None;
        for scale in SCALES {
            let mut tried = weights.clone();
            tried[number] = Draw { scale, ..Draw::declared(seed) };
            if !call(baseline, &tried)? {
                break;
            }
            let places = baseline.layout().call(0).outputs.clone();
            let outputs = baseline.outputs(0);
            let mut matters = false;
            for ((output, usual), place) in outputs.iter().zip(&usual).zip(&places) {
                matters |=
                    memory.differ((*output, Operand::Copied(usual)), place, &spec.effective_tolerance(), MATTERS)?;
            }
            if matters {
                found = Some(tried[number]);
                break;
            }
        }
        weights[number] = found.unwrap_or(declared);
        // Several scaled weights together may overflow.
        if !call(baseline, &weights)? {
            weights[number] = declared;
        }
    }
    baseline.init(memory, &weights)?;
    Ok(weights)
}

/// Changes of the inputs that a task declares, as the check makes them.
const CHANGES: [InputKind; 3] = [InputKind::ScaledUp, InputKind::ScaledDown, InputKind::SignsFlipped];

/// Bytes of a call from which one change is tried: the truth takes long then.
const LARGE_TRIAL_BYTES: u64 = 64 << 20;

/// Returns the changes of the inputs for which the baseline is so near the truth that a program which is far from it is wrong.
pub(super) fn usable_changes<M: Memory>(
    memory: &M,
    shapes: &ConcreteShapes,
    (baseline, truth): (&mut Program<M>, &mut Program<M>),
    limits: &Limits,
    (confirms, call_bytes, seeds): (bool, u64, &mut SecretSeeds),
) -> Result<Vec<InputKind>, Side> {
    let changes = if !confirms || call_bytes > LARGE_CALL_BYTES {
        Vec::new()
    } else if call_bytes > LARGE_TRIAL_BYTES {
        vec![CHANGES[seeds.below(CHANGES.len())]]
    } else {
        CHANGES.to_vec()
    };
    let mut is_usable = |change: &InputKind| -> Result<bool, ProgramError> {
        let inputs = Draw::all(shapes.inputs.len(), seeds.draw(), *change);
        for program in [&mut *baseline, &mut *truth] {
            program.call_on(memory, &inputs)?;
            program.trim_where_large()?;
        }
        let (outputs, expected) = (baseline.outputs(0), truth.outputs(0));
        let finite = all_finite(memory, &outputs)? && all_finite(memory, &expected)?;
        let coarse = limits.coarse();
        Ok(finite && compare_outputs(memory, &outputs, &expected, &shapes.outputs, &coarse)?.wrong_elements == 0)
    };
    let mut usable = Vec::new();
    for change in changes {
        if is_usable(&change).map_err(Side::Baseline)? {
            usable.push(change);
        }
    }
    Ok(usable)
}

/// Returns how far outputs may be from the baseline's, from the baseline's own largest error under these weights.
pub(super) fn limits<M: Memory>(
    memory: &M,
    spec: &TaskSpec,
    shapes: &ConcreteShapes,
    (baseline, truth): (&mut Program<M>, &mut Program<M>),
    weights: &[Draw],
    seeds: &mut SecretSeeds,
) -> Result<Limits, Side> {
    let (mut largest, tolerance) = (ReferenceError::default(), spec.effective_tolerance());
    let mut find = || -> Result<(), ProgramError> {
        truth.init(memory, weights)?;
        for _ in 0..ERROR_SETS {
            let inputs = Draw::all(shapes.inputs.len(), seeds.draw(), InputKind::Declared);
            for program in [&mut *baseline, &mut *truth] {
                program.call_on(memory, &inputs)?;
                program.trim_where_large()?;
            }
            let expected = truth.outputs(0);
            // Without a finite answer there is no error.
            if all_finite(memory, &baseline.outputs(0))? && all_finite(memory, &expected)? {
                let outputs = baseline.outputs(0);
                largest = largest.max(ReferenceError::find(memory, &outputs, &expected, &shapes.outputs, &tolerance)?);
            }
            if let Some(bits) = spec.precision.dropped_bits() {
                let draws = (weights, &inputs[..]);
                largest = largest.max(rounding_error(memory, baseline, bits, shapes, draws, &expected, &tolerance)?);
            }
        }
        Ok(())
    };
    find().map_err(Side::Baseline)?;
    Ok(Limits::against_reference(&tolerance, largest.max(ReferenceError::of(SMALLEST_REFERENCE_ERROR))))
}
