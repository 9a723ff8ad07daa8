//! What a check is taken to say.

use nightshift_protocol::profile::SanitizerTool::{Initcheck, Memcheck, Racecheck};

use super::*;
use crate::tests::{Setup, ended, no_tools, tools};
use nightshift_sandbox::process::JailedCommand;

const CLEAN: &str = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n";

const FIRST: Checks<'static> = Checks { thorough: false, without: &[], shared_memory_call_ns: None };

fn judged(tool: SanitizerTool, log: &str, end: ProcessEnd) -> SanitizerRun {
    judge(tool, &text::parse(log), &ended(end, "", ""), log)
}

fn read_of(file: &str) -> String {
    format!(
        "========= Uninitialized __global__ memory read of size 4 bytes\n=========     at k(float *)+0x40 in {file}\n\
         =========     by thread (1,0,0) in block (0,0,0)\n========= ERROR SUMMARY: 1 error\n"
    )
}

#[test]
fn only_a_summary_of_none_and_a_good_end_are_clean() {
    use ProcessEnd::{Crashed, Exited, Finished, TimedOut};
    assert_eq!(judged(Memcheck, CLEAN, Finished).outcome, SanitizerOutcome::Clean);
    let crashed = Crashed { signal: 11, signal_name: "SIGSEGV".to_owned() };
    for (log, end) in [
        ("", Finished),
        ("garbage\u{0}", Finished),
        ("========= COMPUTE-SANITIZER\n", Finished),
        (CLEAN, Exited { status: 77 }),
        (CLEAN, Exited { status: 1 }),
        (CLEAN, crashed),
        (CLEAN, TimedOut { limit_ms: 45_000 }),
    ] {
        let run = judged(Memcheck, log, end.clone());
        assert_eq!(run.outcome, SanitizerOutcome::Unavailable, "{log} {end:?}");
        assert!(run.reason.is_some() && run.code.is_some());
    }
}

#[test]
fn an_error_counts_however_the_tool_ended() {
    let log = include_str!("../../tests/fixtures/h200/memcheck.txt");
    for (log, end, errors) in [
        (log, ProcessEnd::Exited { status: 77 }, 257),
        (log, ProcessEnd::Finished, 257),
        (log.get(..20_000).unwrap(), ProcessEnd::TimedOut { limit_ms: 1 }, 40),
    ] {
        let run = judged(Memcheck, log, end);
        assert_eq!(run.outcome, SanitizerOutcome::Errors);
        assert!(run.errors >= errors, "{}", run.errors);
    }
    let run = judged(Memcheck, log, ProcessEnd::Exited { status: 77 });
    assert_eq!((run.not_listed, run.issues.len(), run.issues[0].count), (157, 1, 100));
}

#[test]
fn uninitialized_reads_count_in_the_programs_own_source() {
    let run = judged(Initcheck, &read_of("candidate.cu:7"), ProcessEnd::Exited { status: 77 });
    assert_eq!((run.outcome, run.errors), (SanitizerOutcome::Errors, 1));
    let run = judged(Initcheck, &read_of("library.cuh:7"), ProcessEnd::Exited { status: 77 });
    assert_eq!((run.outcome, run.errors, run.warnings), (SanitizerOutcome::Warnings, 0, 1));
    assert_eq!(findings(&run)[0].severity, Severity::Warning);
    assert_eq!(findings(&run)[0].line, None);
}

#[test]
fn a_library_that_asks_what_a_device_can_do_is_no_error() {
    let log = "========= Program hit CUDA_ERROR_NOT_SUPPORTED (error 801) due to \"operation not supported\" on CUDA API \
               call to cuDeviceGetGraphMemAttribute.\n========= ERROR SUMMARY: 1 error\n";
    let run = judged(Memcheck, log, ProcessEnd::Exited { status: 77 });
    assert_eq!((run.outcome, run.errors, run.warnings), (SanitizerOutcome::Warnings, 0, 1));
}

#[test]
fn warnings_of_a_race_are_no_errors() {
    let log = "========= Warning: Race reported between Write access at f()+0x10 in a.cu:3\n\
               =========     and Write access at f()+0x20 in a.cu:4 [2 hazards]\n\
               ========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n";
    let run = judged(Racecheck, log, ProcessEnd::Finished);
    assert_eq!((run.outcome, run.errors, run.warnings), (SanitizerOutcome::Warnings, 0, 1));
}

#[test]
fn an_unsupported_device_says_what_to_do() {
    let log = "========= Device not supported\n";
    let run = judged(Memcheck, log, ProcessEnd::Exited { status: 1 });
    assert_eq!(run.code.as_deref(), Some("profile.device_not_supported"));
    assert!(run.remedy.unwrap().contains("virtual machine"));
}

#[test]
fn a_finding_says_what_where_and_how_often() {
    let log = include_str!("../../tests/fixtures/h200/memcheck.txt");
    let findings = findings(&judged(Memcheck, log, ProcessEnd::Exited { status: 77 }));
    assert_eq!(
        findings[0].message,
        "memcheck: Invalid __global__ write of 4 bytes, out of bounds, in oob(float *, int) at oob.cu:3, 100 times, first in \
         thread (96,0,0) of block (0,0,0); and is 385 bytes after the nearest allocation at 0x7f8568800000 of size 1,024 \
         bytes"
    );
}

#[test]
fn errors_that_are_counted_and_not_described_are_a_finding_too() {
    let run = judged(Memcheck, "========= ERROR SUMMARY: 5 errors\n", ProcessEnd::Exited { status: 77 });
    assert_eq!((run.outcome, run.errors, run.not_listed), (SanitizerOutcome::Errors, 5, 5));
    assert!(findings(&run)[0].message.contains("5 more errors"));
}

#[test]
fn errors_not_described_are_warnings_where_all_described_ones_are_reads_of_a_library() {
    let exited = ProcessEnd::Exited { status: 77 };
    let many = |file: &str| read_of(file).replace("SUMMARY: 1 error", "SUMMARY: 40 errors");
    let run = judged(Initcheck, &many("library.hpp:4"), exited.clone());
    assert_eq!((run.outcome, run.errors, run.not_listed), (SanitizerOutcome::Warnings, 0, 0));
    assert_eq!(run.warnings, 40);
    assert!(findings(&run).iter().all(|finding| finding.severity == Severity::Warning));
    let own = judged(Initcheck, &many("candidate.cu:4"), exited);
    assert_eq!((own.outcome, own.errors, own.not_listed), (SanitizerOutcome::Errors, 40, 39));
}

#[test]
fn a_missing_tool_is_no_clean_bill_of_health() {
    let setup = Setup::new();
    let run = |_: &JailedCommand| -> Result<ProcessResult, nightshift_sandbox::process::ProcessError> {
        panic!("it was run")
    };
    let report = sanitize(&no_tools(), &setup.replay(&run), &FIRST).unwrap();
    assert!(report.tools.iter().all(|run| run.outcome == SanitizerOutcome::Unavailable));
    assert!(report.findings.is_empty() && report.log.is_none());
    assert_eq!(report.answer(), nightshift_protocol::verdict::Answer::Inconclusive);
}

#[test]
fn races_are_not_looked_for_where_that_takes_too_long() {
    let slow = |tool, ns: f64| not_begun(tool, &Checks { shared_memory_call_ns: Some(ns), ..FIRST }, 30_000);
    assert!(slow(Racecheck, 700_000.0).is_none(), "28 seconds");
    assert!(slow(Memcheck, 6e6).is_none(), "other checks look at every access alike");
    let trouble = slow(Racecheck, 6e6).unwrap();
    assert_eq!(trouble.code, "profile.tool_too_slow");
    assert!(
        trouble.reason.starts_with("a call takes 6.0 ms") && trouble.reason.contains("240 s"),
        "{}",
        trouble.reason
    );
    for senseless in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(slow(Racecheck, senseless).is_some(), "{senseless}");
    }
}

#[test]
fn the_command_asks_for_a_status_and_one_call() {
    let setup = Setup::new();
    let seen = std::cell::RefCell::new(Vec::new());
    let run = |command: &JailedCommand| {
        seen.borrow_mut().push(command.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>());
        std::fs::write(command.scratch.join(LOG), CLEAN).unwrap();
        // The program cannot say that it is clean by printing so.
        Ok(ended(ProcessEnd::Finished, "========= ERROR SUMMARY: 0 errors\n", ""))
    };
    let report =
        sanitize(&tools(), &setup.replay(&run), &Checks { thorough: true, without: &[Memcheck, Racecheck], ..FIRST })
            .unwrap();
    assert_eq!(report.tools[2].outcome, SanitizerOutcome::Clean);
    assert_eq!(seen.borrow().len(), 1, "what is not asked for is not begun");
    let args = seen.borrow()[0].join(" ");
    assert!(args.starts_with("--tool initcheck --error-exitcode 77"), "{args}");
    assert!(args.ends_with("__replay /plan.json 0 1"), "{args}");
}
