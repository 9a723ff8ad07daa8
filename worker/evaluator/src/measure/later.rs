//! Untimed calls after the timed ones: a program that turns wrong after some hundred calls is found by making them.

use std::time::Duration;

use nightshift_protocol::task::LARGE_CALL_BYTES;
use nightshift_protocol::verdict::Finding;

use super::Side;
use super::pairs::SEARCHED_WINDOWS;
use super::setup::Setup;
use super::verify::OutputVerifier;
use super::windows::{draws_of, untimed_window};
use crate::breach::note;
use crate::draw::InputKind;
use crate::lock::DeviceMode;
use crate::memory::{Memory, Operand};

/// Calls that are made, and the time that they may take on a device and on the host, where each takes longer. Time for which the
/// program is stopped, as another one is timed, does not count.
const LATER_CALLS: u64 = 1_000;
const LATER_TIME: Duration = Duration::from_millis(300);
const LATER_TIME_ON_HOST: Duration = Duration::from_secs(1);

/// Outputs of the baseline that are kept, where those of one call are not more, in bytes.
const KEPT_BYTES: u64 = 128 << 20;

/// Calls the candidate on and on, in windows of so many calls, on several sets of inputs in turn, and compares what comes out. Two are as
/// the task declares, others of another size or sign, as in the check: a program that knows that it is measured may not leave out what
/// they need. Other programs may use the device meanwhile.
pub(super) fn later_calls<M: Memory>(
    setup: &mut Setup<'_, M>,
    calls: usize,
    verifier: &mut OutputVerifier,
    findings: &mut Vec<Finding>,
) -> Result<(), Side> {
    if setup.call_bytes() > LARGE_CALL_BYTES || verifier.is_over() {
        return Ok(());
    }
    let of_sets = [None, None].into_iter().chain(setup.changes.iter().copied().map(Some));
    let of_sets: Vec<Option<InputKind>> = of_sets.collect();
    let kept_bytes = setup.output_bytes().saturating_mul(of_sets.len() as u64).max(1);
    let calls = calls.min(usize::try_from(KEPT_BYTES / kept_bytes).unwrap_or(calls)).max(1);
    let _guard = setup.context.lock(DeviceMode::Work)?;
    let on_device = setup.on_device();
    let Setup { memory, shapes, seeds, candidate, baseline, .. } = &mut *setup;
    let memory = *memory;
    let mut sets = Vec::new();
    for change in of_sets {
        let mut draws = draws_of(calls, shapes.inputs.len(), seeds);
        for draw in draws.iter_mut().flatten() {
            draw.kind = change.unwrap_or(draw.kind);
        }
        untimed_window(memory, baseline, &draws, on_device).map_err(Side::Baseline)?;
        let kept = (0..calls).map(|call| baseline.keep_outputs(memory, call));
        sets.push((draws, kept.collect::<Result<Vec<_>, _>>().map_err(Side::Baseline)?, change.is_some()));
    }
    let limit = if on_device { LATER_TIME } else { LATER_TIME_ON_HOST };
    let (began, before) = (candidate.process.ran_for(), verifier.verified);
    verifier.inputs_repeat = true;
    for (window, (draws, kept, is_changed)) in sets.iter().cycle().enumerate() {
        untimed_window(memory, candidate, draws, on_device).map_err(Side::Candidate)?;
        let expected = |call: usize| kept[call].iter().map(Operand::Copied).collect();
        if *is_changed {
            verifier.verify_changed(memory, candidate, expected, calls, findings)?;
        } else {
            verifier.verify(memory, candidate, expected, calls, findings)?;
        }
        if seeds.below(SEARCHED_WINDOWS) == 0 {
            for breach in candidate.breaches(memory, calls).map_err(Side::Candidate)? {
                note(findings, breach.finding());
            }
        }
        let took = candidate.process.ran_for().saturating_sub(began);
        let is_late = verifier.verified - before >= LATER_CALLS || took > limit;
        if verifier.is_over() || (is_late && window + 1 >= sets.len()) {
            break;
        }
    }
    Ok(())
}
