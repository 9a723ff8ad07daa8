//! What is asked of nsys, and what is made of its answer.

use std::cell::RefCell;

use nightshift_protocol::verdict::ProcessEnd;

use super::*;
use crate::tests::{Setup, ended, no_tools, tools};
use nightshift_sandbox::process::{JailedCommand, ProcessError};

const REAL: &[u8] = include_bytes!("../../tests/fixtures/h200/nsys_saxpy_matmul.sqlite");

fn text(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

#[test]
fn the_command_traces_the_device_alone() {
    let setup = Setup::new();
    let run = |_: &JailedCommand| Ok(ended(ProcessEnd::Finished, "", ""));
    let args = text(&profile_arguments(Path::new("/scratch/x"), &setup.replay(&run)));
    for wanted in [
        "profile",
        "--trace=cuda",
        "--sample=none",
        "--cpuctxsw=none",
        "--export=sqlite",
        "--output=/scratch/x/timeline",
    ] {
        assert!(args.iter().any(|arg| arg == wanted), "{wanted}");
    }
    assert!(args.join(" ").ends_with("/bin/sh __replay /plan.json 2 5"));
}

#[test]
fn an_export_that_was_not_made_at_once_is_made_afterwards() {
    let setup = Setup::new();
    let asked = RefCell::new(Vec::new());
    let run = |command: &JailedCommand| -> Result<ProcessResult, ProcessError> {
        let verb = command.args.first().cloned().unwrap_or_default();
        asked.borrow_mut().push(verb.to_string_lossy().into_owned());
        let written = if verb == "profile" { "timeline.nsys-rep" } else { "timeline.sqlite" };
        assert!(std::fs::write(command.scratch.join(written), REAL).is_ok());
        Ok(ended(ProcessEnd::Finished, "", ""))
    };
    let (tier, traced) = trace(&tools(), &setup.replay(&run)).unwrap_or_else(|error| panic!("{error}"));
    assert!(tier.used && traced.is_some(), "{tier:?}");
    assert_eq!(*asked.borrow(), ["profile", "export"]);
    assert_eq!(tier.wall_ms, Some(3_000));
}

#[test]
fn the_launches_of_a_call_are_told_in_their_order() {
    let setup = Setup::new();
    let run = |command: &JailedCommand| {
        assert!(std::fs::write(command.scratch.join("timeline.sqlite"), REAL).is_ok());
        Ok(ended(ProcessEnd::Finished, "", ""))
    };
    let (_, traced) = trace(&tools(), &setup.replay(&run)).unwrap_or_else(|error| panic!("{error}"));
    let launched: Vec<String> = traced.into_iter().flat_map(|traced| traced.launched).map(|(_, short)| short).collect();
    assert_eq!(launched, ["saxpy", "matmul", "saxpy", "matmul", "saxpy", "matmul"]);
}

fn reason(run: &dyn Fn(&JailedCommand) -> Result<ProcessResult, ProcessError>) -> TierReport {
    let setup = Setup::new();
    let (tier, traced) = trace(&tools(), &setup.replay(run)).unwrap_or_else(|error| panic!("{error}"));
    assert!(traced.is_none() && !tier.used);
    tier
}

#[test]
fn a_report_that_could_not_be_made_for_want_of_a_library_says_which() {
    let tier = reason(&|command| {
        assert!(std::fs::write(command.scratch.join("timeline.qdstrm"), "raw").is_ok());
        Ok(ended(ProcessEnd::Exited { status: 1 }, "", "Importer error"))
    });
    assert_eq!(tier.code.as_deref(), Some("profile.library_missing"));
    assert!(tier.remedy.unwrap_or_default().contains("libdw1"));
}

#[test]
fn a_tool_that_is_too_slow_broken_or_full_of_garbage_gives_a_reason() {
    let slow = reason(&|_| Ok(ended(ProcessEnd::TimedOut { limit_ms: 20_000 }, "", "")));
    assert_eq!(slow.code.as_deref(), Some("profile.tool_too_slow"));
    let broken = reason(&|_| Ok(ended(ProcessEnd::Exited { status: 2 }, "", "unrecognised option '--export'")));
    assert!(broken.reason.unwrap_or_default().contains("--export"));
    let garbage = reason(&|command| {
        assert!(std::fs::write(command.scratch.join("timeline.sqlite"), "garbage").is_ok());
        Ok(ended(ProcessEnd::Finished, "", ""))
    });
    assert!(garbage.reason.unwrap_or_default().contains("cannot be used"));
}

#[test]
fn a_missing_tool_costs_no_process() {
    let setup = Setup::new();
    let run = |_: &JailedCommand| -> Result<ProcessResult, ProcessError> { panic!("it was run") };
    let (tier, _) = trace(&no_tools(), &setup.replay(&run)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tier.remedy.as_deref(), Some("install it"));
}
