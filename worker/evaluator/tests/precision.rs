//! What a program may round under each precision policy, in the check and while it is timed.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::{Path, PathBuf};

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{ExecutionContext, Place};
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::task::{PrecisionPolicy, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use workshop::{REFERENCE, Workshop, host, machine, program, task};

/// Sums that cancel: `y` is the product of `x` with itself after half of its signs were turned.
const CANCELLING: &str = r#"
#include "nightshift.h"
int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {
    const ns_real *x = (const ns_real *)in[0].data, *w = (const ns_real *)in[1].data;
    ns_real *y = (ns_real *)out[0].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            ns_real sum = 0;
            for (int64_t k = 0; k < columns; k++) sum += x[r * columns + k] * w[(c + k) % columns] * ((c * k) % 3 ? 1 : -1);
            y[r * columns + c] = sum;
        }
    return 0;
}
"#;

struct Bench {
    workshop: Workshop,
    reference: PathBuf,
    truth: PathBuf,
}

impl Bench {
    fn new(reference: &str) -> Self {
        let workshop = Workshop::new();
        let truth = workshop.library("truth", reference, &["-DNS_REAL=double"]);
        let reference = workshop.library("reference", reference, &[]);
        Self { workshop, reference, truth }
    }

    /// A program that drops so many low bits of the significands of `x` and `w`, to the nearest.
    fn rounding(&self, bits: u32) -> PathBuf {
        let preamble = format!(
            "#include <cstring>\nstatic float cut(float v) {{ uint32_t u; memcpy(&u, &v, 4); \
             u = (u + ((1u << {bits}) >> 1)) >> {bits} << {bits}; memcpy(&v, &u, 4); return v; }}"
        );
        let body = "EVERY(y[i] = cut(x[i]) * cut(w[c]) + b[c])";
        self.workshop.library(&format!("rounding{bits}"), &program(&preamble, body), &[])
    }

    /// Returns whether a program that drops so many bits passes the check, and the findings while it is timed.
    fn judge(&self, policy: PrecisionPolicy, bits: u32) -> (bool, Vec<String>) {
        self.judge_program(policy, &self.rounding(bits))
    }

    fn check(&self, candidate: &Path) -> CheckReport {
        let (host, cancel, memory) = (host(SandboxChoice::Best), CancelFlag::default(), HostMemory::new(None));
        let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
        self.check_with(&context, &task(), candidate)
    }

    fn check_with(&self, context: &ExecutionContext<'_>, spec: &TaskSpec, candidate: &Path) -> CheckReport {
        let libraries =
            Libraries { candidate: candidate.to_owned(), reference: self.reference.clone(), truth: self.truth.clone() };
        check(context, spec, &libraries, true, &mut SecretSeeds::from_os().unwrap()).unwrap()
    }

    fn judge_program(&self, policy: PrecisionPolicy, candidate: &Path) -> (bool, Vec<String>) {
        self.judge_in(&TaskSpec { precision: policy, ..task() }, candidate)
    }

    fn judge_in(&self, spec: &TaskSpec, candidate: &Path) -> (bool, Vec<String>) {
        let (host, cancel, memory) = (host(SandboxChoice::Best), CancelFlag::default(), HostMemory::new(None));
        let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
        let passed = passed(&self.check_with(&context, spec, candidate));
        let programs = Programs { candidate, baseline: &self.reference, truth: &self.truth, baseline_label: "" };
        let options = MeasureOptions::on_host(false);
        let timed = measure(&context, spec, &programs, &machine(), true, &options).unwrap();
        let StepOutput::Measured { findings, .. } = timed else { panic!("not measured: {timed:?}") };
        let of_outputs =
            findings.into_iter().map(|finding| finding.code).filter(|code| code.starts_with("timed_output"));
        (passed, of_outputs.collect())
    }
}

fn passed(report: &CheckReport) -> bool {
    report.end == ProcessEnd::Finished && report.cases.iter().all(|case| case.passed)
}

#[test]
fn a_program_that_differs_from_an_imprecise_reference_is_compared_with_the_truth() {
    // In single precision it is off by one in a hundred wherever the weights are not those of its first call.
    let rough = REFERENCE.replace(
        "return 0;",
        "static const ns_real first = w[0] + b[0]; \
         if (sizeof(ns_real) == 4 && w[0] + b[0] != first) for (int64_t i = 0; i < rows * columns; i++) y[i] *= ns_real(1.01); \
         return 0;",
    );
    let bench = Bench::new(&rough);
    let honest = bench.workshop.library("honest", &program("", "HONEST"), &[]);
    let (passed, timed) = bench.judge_program(PrecisionPolicy::Reference, &honest);
    assert!(passed && timed.is_empty(), "{timed:?}");
    // A tenth off is much more than the reference is.
    let wrong = bench.workshop.library("wrong", &program("", "HONEST EVERY(y[i] *= 0.9f)"), &[]);
    assert!(!bench.judge_program(PrecisionPolicy::Reference, &wrong).0);
    let preamble = "#include <vector>\nstatic std::vector<float> kept;";
    let body = "if (kept.empty()) kept.assign(w, w + columns); EVERY(y[i] = x[i] * kept[c] + b[c])";
    let keeps = bench.workshop.library("keeps", &program(preamble, body), &[]);
    assert!(!bench.judge_program(PrecisionPolicy::Reference, &keeps).0);
}

#[test]
fn a_change_counts_only_where_a_program_that_ignores_it_would_fail_next_to_an_imprecise_reference() {
    // In single precision it is off by one where `b` is not that of its first call, and `w` is.
    let rough = REFERENCE.replace("#include \"nightshift.h\"", "#include <vector>\n#include \"nightshift.h\"").replace(
        "return 0;",
        "static const std::vector<ns_real> fw(w, w + columns), fb(b, b + columns); \
         if (sizeof(ns_real) == 4 && std::vector<ns_real>(w, w + columns) == fw) \
         for (int64_t i = 0; i < rows * columns; i++) if (b[i % columns] != fb[i % columns]) y[i] += 1; return 0;",
    );
    let bench = Bench::new(&rough);
    let honest = bench.check(&bench.workshop.library("honest", &program("", "HONEST"), &[]));
    assert!(passed(&honest), "{honest:?}");
    let preamble = "#include <vector>\nstatic std::vector<float> kept_w, kept_b;";
    let body = "std::vector<float> now(w, w + columns); if (now != kept_w) { kept_w = now; kept_b.assign(b, b + columns); } \
                EVERY(y[i] = x[i] * w[c] + kept_b[c])";
    let ignores = bench.check(&bench.workshop.library("ignores", &program(preamble, body), &[]));
    let failed = ignores.cases.iter().find(|case| !case.passed).map(|case| case.inputs.as_str());
    assert!(matches!(failed, Some("scaled:b" | "changed:b")), "{ignores:?}");
}

#[test]
fn a_policy_allows_what_rounding_does_and_no_more() {
    use PrecisionPolicy::{Bf16, Fp16, Reference, Strict, Tf32};
    let bench = Bench::new(REFERENCE);
    for (policy, bits, allowed) in [
        (Reference, 0, true),
        (Reference, 13, false),
        (Strict, 13, false),
        (Tf32, 13, true),
        (Fp16, 13, true),
        (Tf32, 18, false),
        (Bf16, 16, true),
        (Bf16, 21, false),
    ] {
        let (passed, timed) = bench.judge(policy, bits);
        assert_eq!((passed, timed.is_empty()), (allowed, allowed), "{policy:?} without {bits} bits: {timed:?}");
    }
}

#[test]
fn the_tolerance_of_kernelbench_is_the_only_limit_under_its_policies() {
    let bench = Bench::new(REFERENCE);
    // Off by about 1e-4 of the product: within 0.01, and not within 0.0001 where the product is large.
    assert!(!bench.judge(PrecisionPolicy::Kernelbench, 13).0);
    assert!(bench.judge(PrecisionPolicy::KernelbenchFirst, 13).0);
    // Far beyond 64 times the reference's own error, and within 0.0001.
    assert!(!bench.judge(PrecisionPolicy::Reference, 6).0);
    assert!(bench.judge(PrecisionPolicy::Kernelbench, 6).0);
}

#[test]
fn outputs_of_zeros_pass_under_no_policy() {
    let bench = Bench::new(CANCELLING);
    let zeros = bench.workshop.library("zeros", &program("", "EVERY(y[i] = 0)"), &[]);
    // All outputs a tenth too small.
    let shrunk = CANCELLING.replace("= sum;", "= sum * ns_real(0.9);");
    let shrunk = bench.workshop.library("shrunk", &shrunk, &[]);
    for policy in PrecisionPolicy::ALL {
        let (passed, timed) = bench.judge_program(policy, &zeros);
        assert!(!passed && !timed.is_empty(), "zeros pass under {policy:?}");
        let (passed, timed) = bench.judge_program(policy, &shrunk);
        assert!(!passed && !timed.is_empty(), "shrunk results pass under {policy:?}");
        let (passed, timed) = bench.judge_program(policy, &bench.reference);
        assert!(passed && timed.is_empty(), "the reference fails under {policy:?}: {timed:?}");
    }
}

/// The product of `scale-shift` and the column of the largest element of each row.
const WITH_CLASSES: &str = r#"
#include "nightshift.h"
int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {
    const ns_real *x = (const ns_real *)in[0].data, *w = (const ns_real *)in[1].data, *b = (const ns_real *)in[2].data;
    ns_real *y = (ns_real *)out[0].data;
    int32_t *best = (int32_t *)out[1].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    for (int64_t r = 0; r < rows; r++) {
        best[r] = 0;
        for (int64_t c = 0; c < columns; c++) {
            y[r * columns + c] = x[r * columns + c] * w[c] + b[c];
            if (y[r * columns + c] > y[r * columns + best[r]]) best[r] = (int32_t)c;
        }
    }
    return 0;
}
"#;

#[test]
fn a_class_that_rounding_changes_widens_nothing() {
    let bench = Bench::new(WITH_CLASSES);
    let with_classes = |name: &str, (preamble, product, class): (&str, &str, &str)| {
        let body = format!(
            "EVERY(y[i] = {product}) int32_t *best = (int32_t *)out[1].data; for (int64_t r = 0; r < rows; r++) \
             {{ best[r] = 0; for (int64_t c = 0; c < columns; c++) if (y[r * columns + c] > y[r * columns + best[r]]) best[r] = {class}; }}"
        );
        bench.workshop.library(name, &program(preamble, &body), &[])
    };
    let cut = "#include <cstring>\nstatic float cut(float v) { uint32_t u; memcpy(&u, &v, 4); \
               u = (u + (1u << 12)) >> 13 << 13; memcpy(&v, &u, 4); return v; }";
    let rounds = with_classes("rounds", (cut, "cut(x[i]) * cut(w[c]) + b[c]", "(int32_t)c"));
    let far_off = with_classes("far_off", ("", "x[i] * w[c] + b[c] + 0.5f", "(int32_t)c"));
    let constant = with_classes("constant", ("", "x[i] * w[c] + b[c]", "0"));
    for policy in [PrecisionPolicy::Reference, PrecisionPolicy::Fp16] {
        let mut spec = TaskSpec { precision: policy, ..task() };
        let classes = serde_json::json!({"name": "best", "dtype": "i32", "shape": ["rows"]});
        spec.outputs.push(serde_json::from_value(classes).unwrap());
        let judged = |candidate: &Path| bench.judge_in(&spec, candidate);
        if policy == PrecisionPolicy::Fp16 {
            let (passed, timed) = judged(&rounds);
            assert!(passed && timed.is_empty(), "{timed:?}");
        }
        for wrong in [&far_off, &constant] {
            let (passed, timed) = judged(wrong);
            assert!(!passed && !timed.is_empty(), "{policy:?}: {}", wrong.display());
        }
    }
}
