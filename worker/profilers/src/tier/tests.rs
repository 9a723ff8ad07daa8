//! What is said of a tool that gave nothing.

use super::*;
use crate::tests::ended;

fn of(end: ProcessEnd, printed: &str) -> ToolFailure {
    trouble(&ended(end, "", ""), printed)
}

#[test]
fn troubles_that_an_operator_can_end_say_how() {
    for (printed, code) in [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "profile.counters_not_permitted"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "profile.device_not_supported"),
        ("========= Device not supported", "profile.device_not_supported"),
    ] {
        let trouble = of(ProcessEnd::Exited { status: 1 }, printed);
        assert_eq!(trouble.code, code);
        assert!(trouble.remedy.is_some());
    }
}

#[test]
fn a_tool_that_was_too_slow_is_told_apart_from_one_that_failed() {
    assert_eq!(of(ProcessEnd::TimedOut { limit_ms: 20_000 }, "").code, "profile.tool_too_slow");
    let flooding = of(ProcessEnd::OutputExceeded { limit_bytes: 9 }, "");
    assert_eq!(flooding.code, "profile.tool_failed");
    assert!(flooding.reason.contains("printed more than 9 bytes"));
}

#[test]
fn the_line_that_says_most_is_repeated_and_no_more_of_it_than_needed() {
    let printed = format!("hello\n==PROF== Connected\n==ERROR== {}\n", "x".repeat(10_000));
    let trouble = of(ProcessEnd::Exited { status: 9 }, &printed);
    assert!(trouble.reason.contains("==ERROR== xxx") && trouble.reason.len() < 800);
    let warned = of(ProcessEnd::Exited { status: 1 }, "Warning: the folder is odd\nThe report\ncannot be written\n");
    assert!(warned.reason.ends_with(": The report cannot be written"), "{}", warned.reason);
    assert!(of(ProcessEnd::Exited { status: 1 }, "Warning: odd\n").reason.ends_with(": Warning: odd"));
    assert!(of(ProcessEnd::Finished, "").reason.contains("said nothing"));
}
