//! What a modification brought, beside what was expected of it.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::attempt_memory::Gain;

use super::state::RunState;

/// Notes the gain of a finished attempt, when it was timed and so was the attempt that its modification was made on.
pub(super) fn note(run: &mut RunState, number: u32) -> Result<(), WorkflowError> {
    let gain = of(run, run.wanted_attempt(number)?);
    run.wanted_attempt_mut(number)?.gain = gain;
    Ok(())
}

fn of(run: &RunState, attempt: &Attempt) -> Option<Gain> {
    let modification = attempt.modification.as_ref().filter(|_| attempt.outcome.is_correct())?;
    let before = run.attempt(modification.from).filter(|before| before.outcome.is_correct())?.speedup()?.estimate;
    let measured = attempt.speedup()?.estimate / before;
    (measured.is_finite() && before > 0.0).then_some(Gain {
        over: modification.from,
        expected: modification.expected_gain,
        measured,
    })
}
