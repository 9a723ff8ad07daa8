//! Whole profiles from tools that are played by functions.

use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::machine::{GpuFacts, SandboxReport};
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::SanitizerOutcome;
use nightshift_protocol::verdict::{Answer, ProcessEnd};
use tempfile::TempDir;

use super::*;
use nightshift_protocol::step::StepFailure;
use nightshift_sandbox::process::{JailedCommand, ProcessError, ProcessResult};
use nightshift_toolchain::toolchain::Run;

/// Everything that the sanitizers look for.
const ALL: Checks<'static> = Checks { thorough: true, without: &[], shared_memory_call_ns: None };

/// Folders for replays.
pub(super) struct Setup {
    scratch: TempDir,
    library_path: Vec<PathBuf>,
    env: Vec<(String, String)>,
}

impl Setup {
    pub(super) fn new() -> Self {
        Self {
            scratch: tempfile::tempdir().unwrap(),
            library_path: vec![PathBuf::from("/usr/lib")],
            env: [("CUDA_VISIBLE_DEVICES", "1"), ("LD_LIBRARY_PATH", "/of/the/device")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        }
    }

    pub(super) fn replay<'a>(&'a self, run: &'a Run<'a>) -> Replay<'a> {
        Replay {
            run,
            executable: Path::new("/bin/sh"),
            plan: Path::new("/plan.json"),
            in_python: false,
            readable: &[],
            library_path: &self.library_path,
            env: &self.env,
            scratch: self.scratch.path(),
            put: &keep,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for something that can fail")]
fn keep(bytes: &[u8]) -> Result<ArtifactHash, StepFailure> {
    Ok(ArtifactHash::of(bytes))
}

pub(super) fn tools() -> Profilers {
    let tool = |name: &str| {
        Ok(Tool {
            path: PathBuf::from(format!("/opt/{name}")),
            version: "2025.3.1".to_owned(),
            folders: Vec::new(),
            library_path: Vec::new(),
        })
    };
    Profilers {
        nsys: tool("nsys"),
        cupti: Err(MissingTool {
            reason: "not installed".to_owned(),
            remedy: "install it".to_owned(),
            did_not_answer: false,
        }),
        ncu: tool("ncu"),
        compute_sanitizer: tool("compute-sanitizer"),
        limits: TimeLimits::default(),
    }
}

pub(super) fn no_tools() -> Profilers {
    let missing = || {
        Err(MissingTool { reason: "not installed".to_owned(), remedy: "install it".to_owned(), did_not_answer: false })
    };
    Profilers {
        nsys: missing(),
        cupti: missing(),
        ncu: missing(),
        compute_sanitizer: missing(),
        limits: TimeLimits::default(),
    }
}

pub(super) fn ended(end: ProcessEnd, stdout: &str, stderr: &str) -> ProcessResult {
    ProcessResult {
        end,
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
        wall_ms: 1_500,
        peak_bytes: 1,
        sandbox: SandboxReport::default(),
    }
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/h200").join(name)).unwrap()
}

/// The tools as they are on a machine that has them all, for the program of the fixtures.
#[expect(clippy::unnecessary_wraps, reason = "it stands for something that can fail")]
fn real(command: &JailedCommand) -> Result<ProcessResult, ProcessError> {
    let (file, name) = match command.program.file_name().unwrap().to_str().unwrap() {
        "nsys" => ("timeline.sqlite", "nsys_saxpy_matmul.sqlite"),
        "ncu" => ("kernels.csv", "ncu_raw.csv"),
        _ if command.args.iter().any(|arg| arg == "racecheck") => ("sanitizer.log", "racecheck.txt"),
        _ => ("sanitizer.log", "memcheck.txt"),
    };
    std::fs::write(command.scratch.join(file), fixture(name)).unwrap();
    let found = command.program.ends_with("compute-sanitizer");
    Ok(ended(if found { ProcessEnd::Exited { status: 77 } } else { ProcessEnd::Finished }, "", ""))
}

fn refused(_: &JailedCommand) -> Result<ProcessResult, ProcessError> {
    Err(ProcessError::Setup("executing /opt/nsys: Permission denied".to_owned()))
}

fn h200() -> GpuFacts {
    serde_json::from_value(serde_json::json!({
        "index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "compute_capability": "9.0", "memory_bytes": 150_109_880_320_u64,
        "driver_version": "580.0", "cuda_driver_version": "13.0", "sm_clock_max_mhz": 1980, "multiprocessors": 132,
        "memory_bytes_per_s": 4_814_304_000_000_u64,
    }))
    .unwrap()
}

fn subject<'a>(compiler: &'a CompilerReport, gpu: &'a GpuFacts) -> ProfiledProgram<'a> {
    ProfiledProgram {
        compiler,
        cuda: None,
        gpu: Some(gpu),
        flops: Some(1.7e10),
        bytes: Some(5e7),
        median_ns: Some(2.8e6),
    }
}

#[test]
fn all_tools_together_make_a_whole_profile() {
    let (setup, compiler, gpu) = (Setup::new(), CompilerReport::default(), h200());
    let profile = profile(&tools(), &setup.replay(&real), &subject(&compiler, &gpu)).unwrap();
    assert_eq!(profile.tier, "nsys+ncu+analytic_roofline");
    let timeline = profile.timeline.unwrap();
    assert!(timeline.kernels[0].name.starts_with("matmul"));
    assert!(profile.kernels[0].name.starts_with("matmul") && profile.kernels[0].time_share.unwrap() > 0.99);
    assert!(profile.trace.is_some());
    assert!(profile.bound.unwrap().bound.is_some());
    assert_eq!(profile.roofline_bound, "compute");
    // 1.7e10 operations at 132 * 256 * 1.98e9 a second.
    assert!((profile.roofline_share.unwrap() - 1.7e10 / 66.9e12 / 2.8e-3).abs() < 1e-3, "{:?}", profile.roofline_share);
    assert!(profile.missing.iter().any(|line| line.contains("calls of the program could not be told apart")));
}

#[test]
fn without_tools_the_roofline_is_left_and_every_tier_says_why() {
    let (setup, compiler, gpu) = (Setup::new(), CompilerReport::default(), h200());
    let profile = profile(&no_tools(), &setup.replay(&real), &subject(&compiler, &gpu)).unwrap();
    assert_eq!(profile.tier, "analytic_roofline");
    let unused: Vec<&str> = profile
        .tiers
        .iter()
        .filter(|tier| !tier.used && tier.reason.is_some())
        .map(|tier| tier.tool.as_str())
        .collect();
    assert_eq!(unused, ["nsys", "cupti", "ncu", "compiler_report"]);
    assert!(profile.timeline.is_none() && profile.trace.is_none() && profile.kernels.is_empty());
    assert!(profile.missing.iter().any(|line| line.contains("install it")));
    // Nine hundredths of the roof: nothing tells what holds the program back, and that is what is said.
    let unknown = profile.bound.unwrap();
    assert!(unknown.bound.is_none() && unknown.evidence[0].contains("no kernel was counted"), "{unknown:?}");
}

#[test]
fn a_tool_that_cannot_be_started_is_a_reason() {
    let (setup, compiler, gpu) = (Setup::new(), CompilerReport::default(), h200());
    let profile = profile(&tools(), &setup.replay(&refused), &subject(&compiler, &gpu)).unwrap();
    assert!(profile.tiers[0].reason.as_ref().unwrap().contains("Permission denied"));
    let report = sanitize(&tools(), &setup.replay(&refused), &ALL).unwrap();
    assert_eq!((report.answer(), report.tools.len()), (Answer::Inconclusive, 3));
}

#[test]
fn the_end_of_the_step_ends_the_profile() {
    let (setup, compiler, gpu) = (Setup::new(), CompilerReport::default(), h200());
    let cancelled = |_: &JailedCommand| Err(ProcessError::Cancelled);
    let failure = profile(&tools(), &setup.replay(&cancelled), &subject(&compiler, &gpu)).unwrap_err();
    assert_eq!(failure.code, "step.cancelled");
    assert_eq!(sanitize(&tools(), &setup.replay(&cancelled), &ALL).unwrap_err().code, "step.cancelled");
}

#[test]
fn an_unknown_device_has_no_roof() {
    let (setup, compiler) = (Setup::new(), CompilerReport::default());
    let subject =
        ProfiledProgram { compiler: &compiler, cuda: None, gpu: None, flops: None, bytes: None, median_ns: None };
    let profile = profile(&no_tools(), &setup.replay(&real), &subject).unwrap();
    assert_eq!((profile.tier.as_str(), profile.roofline_bound.as_str()), ("none", "unknown"));
}

#[test]
fn tools_see_nothing_of_the_workers_environment() {
    let setup = Setup::new();
    let seen = std::cell::RefCell::new(Vec::new());
    let mut tools = tools();
    tools.nsys.as_mut().unwrap().library_path.push(PathBuf::from("/of/nsys"));
    let run = |command: &JailedCommand| {
        seen.borrow_mut().push(command.clone());
        Ok(ended(ProcessEnd::Finished, "", ""))
    };
    let (compiler, gpu) = (CompilerReport::default(), h200());
    let _ = profile(&tools, &setup.replay(&run), &subject(&compiler, &gpu)).unwrap();
    let _ = sanitize(&tools, &setup.replay(&run), &ALL).unwrap();
    let seen = seen.borrow();
    assert_eq!(seen.len(), 5);
    for command in seen.iter() {
        let mut names: Vec<&str> = command.env.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["CUDA_VISIBLE_DEVICES", "HOME", "LD_LIBRARY_PATH"]);
        let libraries = command.env.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").map(|(_, value)| value.as_str());
        let is_nsys = command.program.ends_with("nsys");
        assert_eq!(libraries, Some(if is_nsys { "/usr/lib:/of/nsys" } else { "/usr/lib" }));
        assert!(command.scratch.starts_with(setup.scratch.path()) && command.limits.wall_ms > 0);
    }
}

#[test]
fn a_real_error_and_a_real_race_are_found() {
    let setup = Setup::new();
    let report = sanitize(&tools(), &setup.replay(&real), &Checks { thorough: false, ..ALL }).unwrap();
    assert_eq!(report.answer(), Answer::Fail);
    assert_eq!(report.tools.iter().map(|run| run.errors).collect::<Vec<_>>(), [257, 1]);
    assert!(report.tools.iter().all(|run| run.outcome == SanitizerOutcome::Errors));
    assert!(report.log.is_some());
    let codes: Vec<_> = report.findings.iter().map(|finding| (finding.code.as_str(), finding.line)).collect();
    assert_eq!(codes, [("memcheck", Some(3)), ("memcheck", None), ("racecheck", Some(4))]);
}
