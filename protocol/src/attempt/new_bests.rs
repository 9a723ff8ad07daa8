//! Which attempts of a run became its best.

/// A right and timed attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedAttempt {
    /// Its number.
    pub number: u32,
    /// The estimate of its published speedup over the reference.
    pub speedup: f64,
    /// True if the published measurement is a confirmation.
    pub is_confirmed: bool,
}

/// Returns the numbers of the attempts that became the best of their run, given its attempts by number and the best one.
///
/// Only a confirmed attempt becomes the best, and the estimates of successive bests grow. An attempt above the best one was not
/// accepted, because its intervals did not exclude that it is slower. Attempts that ran at the same time count in the order of
/// their numbers.
#[must_use]
pub fn new_bests(timed: &[TimedAttempt], best: Option<u32>) -> Vec<u32> {
    let Some(best) = timed.iter().find(|attempt| Some(attempt.number) == best) else { return Vec::new() };
    let mut reached = f64::NEG_INFINITY;
    let mut bests = Vec::new();
    for attempt in timed {
        let is_new = attempt.is_confirmed && attempt.speedup > reached && attempt.speedup <= best.speedup;
        if is_new || attempt.number == best.number {
            reached = attempt.speedup;
            bests.push(attempt.number);
        }
    }
    bests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_that_was_confirmed_and_accepted_became_the_best() {
        let timed = |(number, speedup, is_confirmed)| TimedAttempt { number, speedup, is_confirmed };
        let attempts =
            [(1, 1.2, true), (2, 3.0, false), (3, 2.0, true), (5, 1.5, true), (6, 2.1, true), (7, 2.0, true)]
                .map(timed);
        assert_eq!(new_bests(&attempts, Some(3)), [1, 3], "3.0 was not confirmed, and 2.1 was not accepted");
        assert_eq!(new_bests(&attempts, Some(6)), [1, 3, 6]);
        assert!(new_bests(&attempts, None).is_empty(), "the first one is not accepted yet");
        assert!(new_bests(&[], Some(1)).is_empty(), "the best one turned out wrong");
    }
}
