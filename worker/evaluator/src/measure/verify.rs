//! Verification of a measurement's calls: the whole outputs of every call are compared with the baseline's to the same inputs.

use nightshift_protocol::task::{ConcreteTensor, DType};
use nightshift_protocol::verdict::Finding;

use super::Side;
use crate::breach::{note, violation};
use crate::check::{Limits, all_finite, compare_output, fingerprint};
use crate::compare::OutputErrors;
use crate::memory::{Memory, MemoryError, Operand};
use crate::program::Program;

/// Timed calls with wrong outputs after which a measurement ends.
pub(super) const MAX_WRONG_CALLS: usize = 3;

/// The code of a timed call with wrong outputs.
const TIMED_OUTPUT_WRONG: &str = "timed_output_wrong";

/// Number of calls in which one of many integers may be wrong. More calls may be so up to one in `EXCUSED_ONE_OF`.
const MAX_EXCUSED_CALLS: u64 = 4;
const EXCUSED_ONE_OF: u64 = 4;

/// Compares the outputs of calls, and counts.
#[derive(Debug)]
pub(super) struct OutputVerifier {
    limits: Limits,
    /// The types of the outputs.
    dtypes: Vec<DType>,
    /// Calls of the candidate so far.
    pub(super) made: u64,
    /// Calls whose outputs were compared.
    pub(super) verified: u64,
    /// Calls of the candidate, and verified ones, before the timed calls.
    warm_up: (u64, u64),
    /// Calls with wrong outputs, by their number.
    wrong: Vec<u64>,
    /// Calls in which one of many integers was wrong.
    excused: u64,
    /// True if the calls from now on repeat inputs of each other: two nearly equal values among these come again and again.
    pub(super) inputs_repeat: bool,
}

impl OutputVerifier {
    /// Knows how far outputs may be from the baseline's.
    pub(super) fn new(limits: Limits, outputs: &[ConcreteTensor]) -> Self {
        let dtypes = outputs.iter().map(|output| output.dtype).collect();
        Self {
            limits,
            dtypes,
            made: 0,
            verified: 0,
            warm_up: (0, 0),
            wrong: Vec::new(),
            excused: 0,
            inputs_repeat: false,
        }
    }

    /// Ends the warm-up: calls so far do not count as timed ones, and wrong ones still count as wrong.
    pub(super) fn end_warm_up(&mut self) {
        self.warm_up = (self.made, self.verified);
    }

    /// Returns the number of calls after the warm-up, and of those whose outputs were compared.
    pub(super) fn after_warm_up(&self) -> (u64, u64) {
        (self.made - self.warm_up.0, self.verified - self.warm_up.1)
    }

    /// Compares the outputs of the candidate's last calls with those that the baseline had for the same inputs. Both are stopped.
    pub(super) fn verify<'e, M: Memory + 'e>(
        &mut self,
        memory: &M,
        candidate: &Program<M>,
        expected: impl Fn(usize) -> Vec<Operand<'e, M>>,
        calls: usize,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Side> {
        for call in 0..calls {
            self.made += 1;
            let (outputs, expected) = (candidate.outputs(call), expected(call));
            let (mut errors, mut all_finite, mut is_excused) = (Vec::new(), true, false);
            for ((output, expected), dtype) in outputs.iter().zip(&expected).zip(&self.dtypes) {
                let found = compare_output(memory, (*output, *expected), *dtype, &self.limits)?;
                is_excused |= found.is_excused;
                // An output of which the baseline itself has no finite answer says nothing; the others do.
                if found.largest_error > self.limits.allowed && !memory.is_finite(*expected)? {
                    all_finite = false;
                } else {
                    errors.push(OutputErrors::of(&found));
                }
            }
            self.verified += u64::from(all_finite);
            if self.excuses_too_much(is_excused) {
                note(findings, self.same_integers());
            }
            if !self.limits.pass_timed(&errors) {
                self.wrong.push(self.made);
                note(findings, self.finding(&errors));
            }
        }
        Ok(())
    }

    /// Compares outputs as [`Self::verify`] does, for inputs of another size or sign. The baseline's error for them is known coarsely, so
    /// only elements that are far off are wrong.
    pub(super) fn verify_changed<'e, M: Memory + 'e>(
        &mut self,
        memory: &M,
        candidate: &Program<M>,
        expected: impl Fn(usize) -> Vec<Operand<'e, M>>,
        calls: usize,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Side> {
        let limits = self.limits.coarse();
        for call in 0..calls {
            self.made += 1;
            let (outputs, expected) = (candidate.outputs(call), expected(call));
            if !all_finite(memory, &expected)? {
                continue;
            }
            self.verified += 1;
            let mut far_off = None;
            for ((output, expected), dtype) in outputs.iter().zip(&expected).zip(&self.dtypes) {
                // Which of two nearly equal values is the larger one may change with any rounding.
                if *dtype != DType::I32 {
                    let found = OutputErrors::of(&compare_output(memory, (*output, *expected), *dtype, &limits)?);
                    far_off = far_off.or(Some(found).filter(OutputErrors::is_far_off));
                }
            }
            if let Some(OutputErrors { wrong_elements, elements, .. }) = far_off {
                let message = format!(
                    "call {} of the measurement, on inputs of another size or sign, gave {wrong_elements} elements of {elements} that are \
                     far off: the program leaves out what such inputs need",
                    self.made
                );
                self.wrong.push(self.made);
                note(findings, violation(TIMED_OUTPUT_WRONG, message));
            }
        }
        Ok(())
    }

    fn finding(&self, errors: &[OutputErrors]) -> Finding {
        let number = self.made;
        let wrong_elements: u64 = errors.iter().map(|output| output.wrong_elements).sum();
        let largest = errors.iter().map(|output| output.largest_error).fold(0.0, f64::max);
        if wrong_elements > 0 {
            let message = format!(
                "call {number} of the measurement gave {wrong_elements} wrong elements, the worst of them {largest:.3} times the tolerance \
                 away from the reference: the program is right when it is checked, and wrong when it is measured"
            );
            return violation(TIMED_OUTPUT_WRONG, message);
        }
        let message = format!(
            "call {number} of the measurement was {largest:.3} times the tolerance away from the reference, where {:.3} are allowed",
            self.limits.allowed
        );
        violation("timed_output_imprecise", message)
    }

    /// Counts a call in which one of many integers was wrong. Returns true if that makes more calls than rounding explains.
    fn excuses_too_much(&mut self, is_excused: bool) -> bool {
        let is_counted = is_excused && !self.inputs_repeat;
        self.excused += u64::from(is_counted);
        is_counted && self.has_excused_too_much()
    }

    fn has_excused_too_much(&self) -> bool {
        self.excused > MAX_EXCUSED_CALLS && self.excused * EXCUSED_ONE_OF > self.made
    }

    fn same_integers(&self) -> Finding {
        let (excused, made) = (self.excused, self.made);
        let message = format!(
            "{excused} of {made} calls of the measurement had a wrong integer: rounding explains at most a quarter of the calls"
        );
        violation(TIMED_OUTPUT_WRONG, message)
    }

    /// Returns whether enough calls were wrong.
    pub(super) fn is_over(&self) -> bool {
        self.wrong.len() >= MAX_WRONG_CALLS || self.has_excused_too_much()
    }

    /// Returns whether the calls were right up to some call and wrong from then on. A race makes calls wrong here and there.
    pub(super) fn turned_wrong(&self) -> bool {
        let (Some(first), count) = (self.wrong.first(), self.wrong.len()) else { return false };
        count >= MAX_WRONG_CALLS && *first > 1 && self.made - first + 1 == u64::try_from(count).unwrap_or(0)
    }
}

/// Returns numbers that follow from all bits of the outputs of each of a program's last calls.
pub(super) fn prints<M: Memory>(memory: &M, program: &Program<M>, calls: usize) -> Result<Vec<u64>, MemoryError> {
    (0..calls).map(|call| fingerprint(memory, &program.outputs(call))).collect()
}

/// Returns the finding about outputs that changed after the end of their calls.
pub(super) fn late_outputs() -> Finding {
    let message = "the outputs of a timed call changed after the program had said that its calls were over";
    violation(TIMED_OUTPUT_WRONG, message.to_owned())
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::Tolerance;

    use super::*;
    use crate::check::ReferenceError;

    fn verifier(made: u64, wrong: &[u64]) -> OutputVerifier {
        let tolerance = Tolerance { atol: 1e-3, rtol: 1e-3, reference_error_factor: 64.0 };
        let limits = Limits::against_reference(&tolerance, ReferenceError::of(0.01));
        let mut verifier = OutputVerifier::new(limits, &[]);
        (verifier.made, verifier.verified, verifier.wrong) = (made, made, wrong.to_vec());
        verifier
    }

    #[test]
    fn calls_of_the_warm_up_are_not_counted_as_timed() {
        let mut verifier = verifier(12, &[]);
        verifier.end_warm_up();
        assert_eq!(verifier.after_warm_up(), (0, 0));
        (verifier.made, verifier.verified) = (30, 29);
        assert_eq!(verifier.after_warm_up(), (18, 17));
    }

    #[test]
    fn an_integer_that_is_wrong_in_many_calls_is_no_rounding() {
        let excused = |excused, made| OutputVerifier { excused, ..verifier(made, &[]) }.has_excused_too_much();
        assert!(excused(5, 5) && excused(30, 100));
        assert!(!excused(4, 4), "few calls");
        assert!(!excused(20, 100), "now and then");
        let mut counts = OutputVerifier { excused: 4, ..verifier(10, &[]) };
        assert!(counts.excuses_too_much(true) && counts.is_over());
        // Later calls have two sets of inputs in turn. Two values that are nearly equal are so each time.
        let mut repeats = OutputVerifier { excused: 4, inputs_repeat: true, ..verifier(10, &[]) };
        assert!((0..500).all(|_| !repeats.excuses_too_much(true)) && !repeats.is_over());
    }

    #[test]
    fn a_program_that_turns_wrong_is_told_from_one_that_is_wrong_now_and_then() {
        assert!(verifier(476, &[474, 475, 476]).turned_wrong());
        assert!(!verifier(476, &[12, 475, 476]).turned_wrong(), "now and then");
        assert!(!verifier(476, &[475, 476]).turned_wrong(), "too few");
        assert!(!verifier(3, &[1, 2, 3]).turned_wrong(), "from the beginning");
        assert!(!verifier(3, &[]).turned_wrong());
    }
}
