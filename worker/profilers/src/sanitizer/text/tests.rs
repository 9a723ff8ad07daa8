//! What real checks printed, what the manual says of others, and what damage does to it.

use proptest::prelude::*;

use super::*;

const MEMCHECK: &str = include_str!("../../../tests/fixtures/h200/memcheck.txt");
const RACECHECK: &str = include_str!("../../../tests/fixtures/h200/racecheck.txt");

#[test]
fn a_real_write_out_of_bounds_is_one_issue_of_many_records() {
    let said = parse(MEMCHECK);
    assert_eq!((said.errors, said.failure.as_deref(), said.issues.len()), (Some(257), None, 1));
    let issue = &said.issues[0];
    assert_eq!(issue.kind, "Invalid __global__ write, out of bounds");
    assert_eq!((issue.records, issue.size_bytes, issue.is_error, issue.is_api), (100, Some(4), true, false));
    assert_eq!(issue.kernel.as_deref(), Some("oob(float *, int)"));
    assert_eq!((issue.file.as_deref(), issue.line), (Some("oob.cu"), Some(3)));
    assert_eq!((issue.thread, issue.block), (Some([96, 0, 0]), Some([0, 0, 0])));
    assert_eq!(issue.address.as_deref(), Some("0x7f8568800580"));
    let nearest = "and is 385 bytes after the nearest allocation at 0x7f8568800000 of size 1,024 bytes";
    assert_eq!(issue.details, [nearest]);
}

#[test]
fn a_real_race_names_both_accesses_and_its_hazards() {
    let said = parse(RACECHECK);
    assert_eq!((said.errors, said.warnings, said.issues.len()), (Some(1), 0, 1));
    let issue = &said.issues[0];
    assert_eq!(issue.kind, "Race reported between write access");
    assert_eq!((issue.kernel.as_deref(), issue.line, issue.events), (Some("race(float *)"), Some(4), 1024));
    assert_eq!(issue.details, ["and Read access at race(float *)+0xc0 in oob.cu:4"]);
    assert_eq!(issue.clone().into_stored().count, 1024);
}

#[test]
fn nothing_found_is_a_summary_of_none() {
    let text = "========= COMPUTE-SANITIZER\n4608.000000\n========= ERROR SUMMARY: 0 errors\n";
    assert_eq!(parse(text), Said { errors: Some(0), ..Said::default() });
    let text = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n";
    assert_eq!(parse(text).errors, Some(0));
}

#[test]
fn an_uninitialized_read_is_read() {
    let text = "========= Uninitialized __global__ memory read of size 8 bytes\n\
                =========     at k(float *)+0x40 in /tmp/x/candidate.cu:12\n\
                =========     by thread (0,1,0) in block (2,0,3)\n\
                =========     Address 0x7f0000000000\n\
                ========= ERROR SUMMARY: 1 error\n";
    let said = parse(text);
    let issue = &said.issues[0];
    assert_eq!((said.errors, issue.kind.as_str()), (Some(1), "Uninitialized __global__ memory read"));
    assert_eq!((issue.file.as_deref(), issue.line, issue.size_bytes), (Some("candidate.cu"), Some(12), Some(8)));
    assert_eq!(issue.block, Some([2, 0, 3]));
}

#[test]
fn failed_calls_of_interfaces_are_told_apart_from_wrong_accesses() {
    let text = "========= Program hit cudaErrorInvalidValue (error 1) due to \"invalid argument\" on CUDA API call to \
                cudaMemcpy.\n=========     Saved host backtrace up to driver entry point at error\n\
                =========         Host Frame: f [0x1] in x.so\n=========\n========= ERROR SUMMARY: 1 error\n";
    let said = parse(text);
    assert!(said.issues[0].is_api && said.issues[0].details[0].contains("cudaMemcpy"));
    assert_eq!(said.issues[0].details.len(), 1);
}

#[test]
fn what_keeps_the_tool_from_looking_is_a_failure() {
    for line in [
        "========= Error: No attachable process found. compute-sanitizer timed-out.",
        "========= Internal Sanitizer Error: The Sanitizer encountered an error and may have skipped checks",
        "========= Target application terminated before first instrumented API call",
        "========= Device not supported. Please refer to the documentation.",
    ] {
        let said = parse(&format!("{line}\n========= ERROR SUMMARY: 0 errors\n"));
        assert!(said.failure.is_some() && said.issues.is_empty(), "{line}");
    }
}

#[test]
fn several_summaries_are_added_up_and_the_second_line_of_one_is_not() {
    let text = "========= ERROR SUMMARY: 1,200 errors\n========= ERROR SUMMARY: 1,100 errors were not printed. Use x\n\
                ========= ERROR SUMMARY: 3 errors\n";
    assert_eq!(parse(text).errors, Some(1_203));
}

#[test]
fn lines_of_the_program_are_not_the_tools() {
    let text = "ERROR SUMMARY: 0 errors\n== ========= ERROR SUMMARY: 0 errors\n    at f in x.cu:3\n";
    assert_eq!(parse(text), Said::default());
}

#[test]
fn a_log_that_was_cut_off_has_no_summary() {
    let cut = MEMCHECK.get(..MEMCHECK.len() / 2).unwrap();
    let said = parse(cut);
    // The last record is cut as well, so that it may look like another one.
    assert!(said.errors.is_none() && (1..=2).contains(&said.issues.len()));
}

#[test]
fn more_different_things_than_are_kept_are_dropped() {
    let one = |line: u32| {
        format!("========= Invalid __global__ read of size 4 bytes\n=========     at f()+0x10 in a.cu:{line}\n")
    };
    let text = (1..=200).map(one).collect::<Vec<_>>().concat();
    assert_eq!(parse(&text).issues.len(), MAX_ISSUES);
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(lines in prop::collection::vec("(=========)?( |     )?(Error: |Invalid |at |by thread |ERROR SUMMARY: |RACECHECK SUMMARY: |Access to )?[ -~ä\u{0}]{0,60}", 0..30)) {
        let _ = parse(&lines.join("\n"));
    }

    #[test]
    fn no_damage_makes_reading_panic(hits in prop::collection::vec((0_usize..45_000, any::<u8>()), 1..100)) {
        let mut bytes = MEMCHECK.as_bytes().to_vec();
        for (at, value) in hits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        prop_assert!(parse(&String::from_utf8_lossy(&bytes)).issues.len() <= MAX_ISSUES);
    }
}
