//! `tune` as a worker carries it out: real builds, real timings, real checks, no model.

#[path = "support/bench.rs"]
#[expect(dead_code, reason = "other tests look into the bench's folder")]
mod bench;

use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::step::{FailureClass, PreparedTask, StepInput, StepOutput};
use nightshift_protocol::tune::{TuneBudget, TuneEnd, TuneReport, TunedProgram, VariantOutcome};
use nightshift_protocol::verdict::ProcessEnd;

use self::bench::Bench;

/// Does its work as often as `REPEAT` says, which must not be zero; with 3 it does not compile, with 5 it dies.
const PROGRAM: &str = r#"#include "nightshift.h"
NIGHTSHIFT_TUNABLE(REPEAT, 64, 64, 16, 1, 0, 3, 5);
static_assert(REPEAT != 3, "three is refused");
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    if (REPEAT == 5) *reinterpret_cast<volatile int *>(8) = 1;
    for (int turn = 0; turn < REPEAT * 256; turn++) {
        for (int64_t i = 0; i < inputs[0].shape[0]; i++) y[i] = x[i] * 2.0f + x[i] * x[i];
        asm volatile("" ::: "memory");
    }
    return 0;
}
"#;

const REFERENCE: &str = r#"#include "nightshift.h"
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    for (int turn = 0; turn < 2000; turn++) {
        for (int64_t i = 0; i < inputs[0].shape[0]; i++) y[i] = x[i] * 2 + x[i] * x[i];
        asm volatile("" ::: "memory");
    }
    return 0;
}
"#;

const AMPLE: TuneBudget = TuneBudget { max_variants: 32, wall_ms: 120_000 };

struct Prepared {
    bench: Bench,
    task: ArtifactHash,
    facts: Box<PreparedTask>,
}

fn prepared() -> Prepared {
    let bench = Bench::new();
    let task = bench.task(REFERENCE, "cpu", 60_000);
    match bench.execute(&StepInput::PrepareTask { task: task.clone() }) {
        Ok(StepOutput::TaskPrepared { prepared }) => Prepared { bench, task, facts: prepared },
        other => panic!("not prepared: {other:?}"),
    }
}

impl Prepared {
    fn input(&self, source: &str, budget: TuneBudget) -> StepInput {
        StepInput::Tune {
            task: self.task.clone(),
            source: self.bench.put(source),
            reference_library: self.facts.reference_library.clone(),
            truth_library: self.facts.truth_library.clone(),
            budget,
            sandbox_required: false,
        }
    }

    fn tune(&self, source: &str, budget: TuneBudget) -> (TuneReport, Option<Box<TunedProgram>>) {
        match self.bench.execute(&self.input(source, budget)) {
            Ok(StepOutput::Tuned { report, program }) => (*report, program),
            other => panic!("not tuned: {other:?}"),
        }
    }
}

fn outcomes(report: &TuneReport) -> Vec<(i64, VariantOutcome)> {
    report.variants.iter().map(|variant| (variant.values[0], variant.outcome)).collect()
}

#[test]
fn the_fastest_right_variant_becomes_the_program_built_and_checked() {
    let prepared = prepared();
    let (report, program) = prepared.tune(PROGRAM, AMPLE);
    let expected = [
        (64, VariantOutcome::Slower),
        (16, VariantOutcome::Slower),
        (1, VariantOutcome::Chosen),
        (0, VariantOutcome::Wrong),
        (3, VariantOutcome::NotBuilt),
        (5, VariantOutcome::Failed),
    ];
    assert_eq!(outcomes(&report), expected, "{report:?}");
    assert_eq!((report.configurations, report.end), (6, TuneEnd::Settled));
    let message = |value: i64| {
        let found = report.variants.iter().find(|variant| variant.values == [value]);
        found.and_then(|variant| variant.message.clone()).unwrap_or_default()
    };
    assert!(message(3).contains("three is refused"), "{}", message(3));
    assert!(!message(0).is_empty() && !message(5).is_empty());
    let speedup = |at: usize| report.variants[at].speedup.map_or(0.0, |speedup| speedup.estimate);
    assert!(speedup(2) > speedup(0), "a sixty-fourth of the work: {report:?}");

    let Some(program) = program else { panic!("nothing won") };
    let Ok(source) = prepared.bench.store.get(&program.source) else { panic!("the source is not kept") };
    let expected = PROGRAM.replace("(REPEAT, 64,", "(REPEAT, 1,");
    assert_eq!(String::from_utf8_lossy(&source), expected, "nothing but the value changed");
    assert!(program.build.library.is_some());
    assert_eq!(program.check.end, ProcessEnd::Finished);
    assert!(!program.check.cases.is_empty() && program.check.cases.iter().all(|case| case.passed));
    // What comes next for an attempt: the library that won is there to be measured.
    let measure = StepInput::Measure {
        task: prepared.task.clone(),
        library: program.build.library.clone().unwrap_or_else(|| ArtifactHash::of(b"")),
        reference_library: prepared.facts.reference_library.clone(),
        confirms: false,
        sandbox_required: false,
    };
    assert!(matches!(prepared.bench.execute(&measure), Ok(StepOutput::Measured { .. })));
    assert!(prepared.bench.build(&expected).cached, "it was built under the address of its source");
}

#[test]
fn a_program_that_is_best_as_it_was_written_stays_so() {
    let source = PROGRAM.replace("(REPEAT, 64, 64, 16, 1, 0, 3, 5)", "(REPEAT, 1, 1, 16, 64)");
    let (report, program) = prepared().tune(&source, AMPLE);
    assert!(program.is_none());
    let expected = [(1, VariantOutcome::Kept), (16, VariantOutcome::Slower), (64, VariantOutcome::Slower)];
    assert_eq!(outcomes(&report), expected, "{report:?}");
}

#[test]
fn the_budget_ends_the_search() {
    let prepared = prepared();
    let began = Instant::now();
    let (report, _) = prepared.tune(PROGRAM, TuneBudget { max_variants: 2, wall_ms: 1 });
    assert!(began.elapsed() < Duration::from_mins(1));
    assert_eq!((report.variants.len(), report.end), (2, TuneEnd::BudgetUsed));
    assert_eq!(report.variants[1].outcome, VariantOutcome::NotReached);
}

#[test]
fn declarations_that_cannot_be_read_end_the_step_for_good() {
    let prepared = prepared();
    let source = PROGRAM.replace("(REPEAT, 64,", "(REPEAT, 65,");
    let Err(failure) = prepared.bench.execute(&prepared.input(&source, AMPLE)) else { panic!("not refused") };
    assert_eq!((failure.code.as_str(), failure.class), ("worker.bad_tunables", FailureClass::Fatal));
    assert!(failure.message.contains("line 2"), "{}", failure.message);
}
