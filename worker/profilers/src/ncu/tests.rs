//! What is asked of ncu, and what is made of its answer.

use std::cell::RefCell;

use nightshift_protocol::attempt::Bound;
use nightshift_protocol::profile::{KernelTime, Timeline};

use super::*;
use crate::MissingTool;
use crate::tests::{Setup, ended, tools};
use nightshift_sandbox::process::JailedCommand;

const REAL: &str = include_str!("../../tests/fixtures/h200/ncu_raw.csv");

const HOPPER: ComputeCapability = ComputeCapability { major: 9, minor: 0 };

fn traced(kernels: &[(&str, f64)], launched: &[&str]) -> Traced {
    let named = |short: &str| format!("{short}(float *)");
    Traced {
        timeline: Timeline {
            kernels: kernels
                .iter()
                .map(|(short, share)| KernelTime { name: named(short), share: *share, ..KernelTime::default() })
                .collect(),
            ..Timeline::default()
        },
        trace: Vec::new(),
        marked: true,
        launched: launched.iter().map(|short| (named(short), (*short).to_owned())).collect(),
    }
}

/// A tool that writes this as its log.
fn writes(log: &str) -> impl Fn(&JailedCommand) -> Result<ProcessResult, nightshift_sandbox::process::ProcessError> {
    move |command| {
        std::fs::write(command.scratch.join(LOG), log).unwrap();
        Ok(ended(ProcessEnd::Finished, "", ""))
    }
}

#[test]
fn the_kernels_with_most_of_the_time_are_selected_and_launched_often_enough_to_be_seen() {
    let shares = [("a", 0.5), ("b", 0.3), ("c", 0.16), ("d", 0.03), ("e", 0.01)];
    let selection = select(&traced(&shares, &["d", "b", "a", "b", "b", "e", "c", "a"]));
    assert_eq!(selection, Selection { names: vec!["a".into(), "b".into(), "c".into()], launches: 5 });
}

#[test]
fn one_that_comes_too_late_is_not_waited_for() {
    let launched: Vec<&str> = std::iter::repeat_n("a", 100).chain(["b"]).collect();
    assert_eq!(select(&traced(&[("a", 0.6), ("b", 0.4)], &launched)).launches, MAX_LAUNCHES);
}

#[test]
fn the_command_names_the_kernels_alone_and_leaves_the_clocks_alone() {
    let setup = Setup::new();
    let run = writes("");
    let replay = setup.replay(&run);
    let selection = Selection { names: vec!["a".to_owned(), "f<int>::operator()".to_owned()], launches: 3 };
    let args = arguments(Path::new("/scratch/x"), &replay, &selection, &["gpu__time_duration.sum", "b__c"]);
    let args: Vec<String> = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let value = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).cloned();
    assert_eq!(value("--kernel-name").as_deref(), Some(r"regex:^(a|f\<int\>\:\:operator\(\))$"));
    assert_eq!(value("--launch-count").as_deref(), Some("3"));
    assert_eq!(value("--clock-control").as_deref(), Some("none"));
    assert_eq!(value("--profile-from-start").as_deref(), Some("off"));
    assert_eq!(value("--metrics").as_deref(), Some("gpu__time_duration.sum,b__c"));
    assert_eq!(value("--log-file").as_deref(), Some("/scratch/x/kernels.csv"));
    // The replay comes last, and nothing of it is taken for an option of the tool.
    assert_eq!(args.iter().rev().take(4).map(String::as_str).collect::<Vec<_>>(), ["1", "1", "/plan.json", "__replay"]);
}

#[test]
fn a_real_table_becomes_profiles_of_its_kernels() {
    let setup = Setup::new();
    let run = writes(REAL);
    let (tier, kernels) = count(&tools(), &setup.replay(&run), None, Some(HOPPER)).unwrap();
    assert!(tier.used && tier.reason.is_none(), "{tier:?}");
    let (matmul, saxpy) = (&kernels[0], &kernels[1]);
    assert_eq!((matmul.launches, saxpy.launches, kernels.len()), (3, 3, 2));
    assert!(matmul.name.starts_with("matmul"));
    assert_eq!(matmul.duration_ns, Some(2_758_656.0), "the longest launch");
    assert_eq!((saxpy.registers_per_thread, matmul.registers_per_thread), (Some(16.0), Some(32.0)));
    let close = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-9);
    assert!(close(matmul.memory_share, 0.9457) && close(matmul.dram_share, 0.0035), "{matmul:?}");
    assert_eq!(matmul.occupancy_limited_by.as_deref(), Some("warps"));
    assert!(matmul.tensor_ops.is_empty(), "no tensor core worked, whatever the pipe's percentage says");
    assert_eq!(matmul.bound.bound, Some(Bound::Memory));
    assert!(matmul.bound.evidence[0].contains("L1 cache and shared memory"), "{:?}", matmul.bound);
    // What the tool's own rule says of it as well: neither memory nor arithmetic is busy.
    assert_eq!(saxpy.bound.bound, Some(Bound::Latency));
    assert_eq!(saxpy.stalls[0].reason, "long_scoreboard");
    assert!(saxpy.stalls.iter().all(|stall| stall.reason != "selected"));
}

#[test]
fn the_share_of_time_comes_from_the_timeline() {
    let setup = Setup::new();
    let run = writes(REAL);
    let shares = [("saxpy", 0.7), ("matmul", 0.3)];
    let (tier, kernels) =
        count(&tools(), &setup.replay(&run), Some(&traced(&shares, &["saxpy", "matmul"])), Some(HOPPER)).unwrap();
    assert!(tier.reason.is_none());
    assert_eq!((kernels[0].time_share, kernels[1].time_share), (Some(0.7), Some(0.3)));
    assert!(kernels[0].name.starts_with("saxpy"));
}

#[test]
fn a_kernel_that_was_not_reached_is_named() {
    let setup = Setup::new();
    let run = writes(REAL);
    let traced = traced(&[("late", 0.9), ("saxpy", 0.1)], &["saxpy", "late"]);
    let (tier, _) = count(&tools(), &setup.replay(&run), Some(&traced), Some(HOPPER)).unwrap();
    assert!(tier.used && tier.reason.unwrap().contains("late"));
}

#[test]
fn a_refused_permission_says_how_to_grant_it() {
    let setup = Setup::new();
    let run = |_: &JailedCommand| {
        let said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance \
                    Counters on the target device 0.\n";
        Ok(ended(ProcessEnd::Exited { status: 1 }, said, ""))
    };
    let (tier, kernels) = count(&tools(), &setup.replay(&run), None, Some(HOPPER)).unwrap();
    assert!(!tier.used && kernels.is_empty());
    assert_eq!(tier.code.as_deref(), Some("profile.counters_not_permitted"));
    assert!(tier.remedy.unwrap().contains("NVreg_RestrictProfilingToAdminUsers=0"));
}

#[test]
fn a_list_that_the_chip_does_not_know_is_replaced_by_the_short_one() {
    let setup = Setup::new();
    let asked = RefCell::new(Vec::new());
    let run = |command: &JailedCommand| {
        let metrics = command.args.iter().skip_while(|arg| *arg != "--metrics").nth(1).unwrap().clone();
        asked.borrow_mut().push(metrics.to_string_lossy().split(',').count());
        if asked.borrow().len() == 1 {
            return Ok(ended(ProcessEnd::Exited { status: 1 }, "==ERROR== Failed to find metric a__b.sum\n", ""));
        }
        std::fs::write(command.scratch.join(LOG), REAL).unwrap();
        Ok(ended(ProcessEnd::Finished, "", ""))
    };
    let (tier, kernels) = count(&tools(), &setup.replay(&run), None, Some(HOPPER)).unwrap();
    assert!(tier.used && kernels.len() == 2);
    let asked = asked.borrow();
    assert!(asked[0] > asked[1], "{asked:?}");
}

#[test]
fn another_chip_is_asked_for_what_every_chip_has() {
    assert_eq!(metrics::lists(Some(ComputeCapability { major: 8, minor: 0 })).len(), 1);
    assert_eq!(metrics::lists(None).len(), 1);
    let lists = metrics::lists(Some(HOPPER));
    assert!(lists.len() == 2 && lists[0].len() > lists[1].len());
    let mut names = lists[0].clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), lists[0].len(), "no counter is paid for twice");
}

#[test]
fn a_program_without_kernels_costs_no_run_of_the_tool() {
    let setup = Setup::new();
    let run = |_: &JailedCommand| -> Result<ProcessResult, nightshift_sandbox::process::ProcessError> {
        panic!("it was run")
    };
    let (tier, _) = count(&tools(), &setup.replay(&run), Some(&traced(&[], &[])), None).unwrap();
    assert!(!tier.used);
}

#[test]
fn garbage_too_little_time_and_a_missing_tool_are_reasons() {
    let setup = Setup::new();
    let garbage = writes("\u{0}\u{1}\"ID\",\"x\"\n\"0\"");
    let (tier, _) = count(&tools(), &setup.replay(&garbage), None, None).unwrap();
    assert!(!tier.used && tier.code.as_deref() == Some("profile.tool_failed"));
    let slow = |_: &JailedCommand| Ok(ended(ProcessEnd::TimedOut { limit_ms: 30_000 }, "", ""));
    let (tier, _) = count(&tools(), &setup.replay(&slow), None, None).unwrap();
    assert_eq!(tier.code.as_deref(), Some("profile.tool_too_slow"));
    let none = Profilers {
        ncu: Err(MissingTool { reason: "gone".into(), remedy: "get it".into(), did_not_answer: false }),
        ..tools()
    };
    let (tier, _) = count(&none, &setup.replay(&slow), None, None).unwrap();
    assert_eq!((tier.reason.as_deref(), tier.remedy.as_deref()), (Some("gone"), Some("get it")));
}

#[test]
fn bare_names_are_names_without_types() {
    for (name, bare) in [
        ("saxpy(const float *, int)", "saxpy"),
        ("void ns::gemm<float, 4>(float *)", "gemm"),
        ("plain", "plain"),
        ("float *f(int)", "f"),
        ("", ""),
    ] {
        assert_eq!(kernels::bare_name(name), bare);
    }
}
