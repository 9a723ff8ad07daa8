//! When the tunables of a program are searched, with what budget, and what becomes of the program that won.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::tunable::{MAX_CONFIGURATIONS, configurations};
use nightshift_protocol::tune::{TuneBudget, TuneReport, TunedProgram};
use nightshift_protocol::verdict::{ProcessEnd, has_violation};

use super::state::RunState;

/// Variants of a search, unless task or campaign say otherwise.
pub const DEFAULT_MAX_VARIANTS: u32 = 32;

/// Time after which a search starts no further variant, in milliseconds: some dozens of builds and short measurements.
const WALL_MS: u64 = 120_000;

fn max_variants(run: &RunState) -> u32 {
    run.input.goal.max_variants.unwrap_or(DEFAULT_MAX_VARIANTS).min(MAX_CONFIGURATIONS)
}

/// Whether the run tunes at all: a single variant is the program as it was written.
pub(super) fn is_switched_on(run: &RunState) -> bool {
    max_variants(run) > 1
}

/// Whether an attempt has something to choose from, and was not searched yet.
pub(super) fn is_worth_it(attempt: &Attempt) -> bool {
    attempt.tuning.is_none() && configurations(&attempt.tunables) > 1
}

/// What the search may use up.
pub(super) fn budget(run: &RunState) -> TuneBudget {
    TuneBudget { max_variants: max_variants(run), wall_ms: WALL_MS }
}

/// Goes on with the program that won: its source, its build and its check take the place of those of the program as it was
/// written. Everything that follows, the measurement first of all, is done with it. A program that is not built, or did
/// not pass its whole check, is not adopted, even when the tuner reports it as the winner.
pub(super) fn adopt(attempt: &mut Attempt, report: TuneReport, program: Option<TunedProgram>) {
    if let Some(program) = program.filter(passed) {
        for finding in &program.check.findings {
            if !attempt.findings.contains(finding) {
                attempt.findings.push(finding.clone());
            }
        }
        if let Some(chosen) = report.chosen() {
            for (tunable, value) in attempt.tunables.iter_mut().zip(&chosen.values) {
                tunable.value = *value;
            }
        }
        attempt.source = Some(program.source);
        attempt.build = Some(program.build);
        attempt.check = Some(program.check);
    }
    attempt.tuning = Some(report);
}

fn passed(program: &TunedProgram) -> bool {
    let check = &program.check;
    program.build.library.is_some()
        && check.end == ProcessEnd::Finished
        && !check.cases.is_empty()
        && check.cases.iter().all(|case| case.passed)
        && !has_violation(&check.findings)
}
