//! Profilers and sanitizers in the real jail, played by scripts: good ones, slow ones, broken ones.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nightshift_profilers::{Checks, ProfiledProgram, Profilers, Replay, TimeLimits, profile, sanitize};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::{Profile, SanitizerOutcome, SanitizerTool};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::Answer;
use nightshift_sandbox::process::{
    CancelFlag, JailedCommand, ProcessError, ProcessResult, SandboxChoice, run_jailed, run_jailed_as_tool,
};
use nightshift_testbed::executable::write_executable;
use tempfile::TempDir;
use workshop::{ROADS, host};

/// Longest that a profile with hanging tools may take: three limits, and what the machine's other work adds.
const PATIENCE: Duration = Duration::from_mins(1);
const ALL: Checks<'static> = Checks { thorough: true, without: &[], shared_memory_call_ns: None };
const FIRST: Checks<'static> = Checks { thorough: false, without: &[], shared_memory_call_ns: None };

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("profilers/tests/fixtures/h200")
}

/// A folder of tools, each a script that answers `--version` and else does this.
struct Tools {
    folder: TempDir,
    scratch: TempDir,
    means: SandboxChoice,
}

impl Tools {
    fn new(means: SandboxChoice, scripts: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in scripts {
            let path = folder.path().join(name);
            let text = format!(
                "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'Version 1.2.3'; exit 0; fi\ncd \"$HOME\"\n{script}\n"
            );
            write_executable(&path, &text);
        }
        Self { folder, scratch: tempfile::tempdir().unwrap(), means }
    }

    fn run(&self, command: &JailedCommand) -> Result<ProcessResult, ProcessError> {
        run_jailed(&host(self.means).jail, command, &CancelFlag::default())
    }

    fn found(&self, limit_ms: u64) -> Profilers {
        let run = |command: &JailedCommand| self.run(command);
        let limits = TimeLimits { nsys_ms: limit_ms, export_ms: limit_ms, ncu_ms: limit_ms, sanitizer_ms: limit_ms };
        let search_path = [self.folder.path().to_path_buf()];
        Profilers { limits, ..Profilers::find(&search_path, &[], self.scratch.path(), &run) }
    }

    fn with_replay<T>(&self, work: impl FnOnce(&Replay<'_>) -> T) -> T {
        let run = |command: &JailedCommand| self.run(command);
        let keep = |bytes: &[u8]| -> Result<ArtifactHash, StepFailure> { Ok(ArtifactHash::of(bytes)) };
        let readable = [self.folder.path().to_path_buf(), fixtures()];
        work(&Replay {
            run: &run,
            executable: Path::new("/bin/true"),
            plan: Path::new("/plan.json"),
            in_python: false,
            readable: &readable,
            library_path: &[],
            env: &[],
            scratch: self.scratch.path(),
            put: &keep,
        })
    }

    fn profile(&self, limit_ms: u64) -> Profile {
        let compiler = CompilerReport::default();
        let subject = ProfiledProgram {
            compiler: &compiler,
            cuda: None,
            gpu: None,
            flops: None,
            bytes: None,
            median_ns: Some(1e6),
        };
        self.with_replay(|replay| profile(&self.found(limit_ms), replay, &subject)).unwrap()
    }
}

fn copying(from: &str, to: &str) -> String {
    format!("cp {} \"$HOME\"/{to}", fixtures().join(from).display())
}

fn codes(profile: &Profile) -> Vec<&str> {
    profile.tiers.iter().filter_map(|tier| tier.code.as_deref()).collect()
}

#[test]
fn good_tools_give_a_whole_profile_on_every_road() {
    let nsys = copying("nsys_saxpy_matmul.sqlite", "timeline.sqlite");
    let ncu = copying("ncu_raw.csv", "kernels.csv");
    for means in ROADS {
        let tools = Tools::new(means, &[("nsys", &nsys), ("ncu", &ncu)]);
        let profile = tools.profile(30_000);
        assert_eq!(profile.tier, "nsys+ncu", "{means:?}: {:#?}", profile.tiers);
        assert_eq!(profile.kernels.len(), 2);
        assert_eq!(profile.tiers[0].version.as_deref(), Some("1.2.3"));
    }
}

/// A tool as NVIDIA ships them: a launch script that looks for its parts beside itself, a part that looks itself up among the
/// processes, and traces of both in the folders for such things.
const PARTICULAR: &str = r#"#!/bin/sh
set -e
here=$(dirname "$(readlink -f "$0")")
cat /proc/self/comm > "$HOME/comm" 2> "$HOME/errors" || { printf 'Exception type:\nfilesystem_error: /proc/self' >&2; exit 1; }
cat /sys/devices/system/cpu/online > "$TMPDIR/online"
echo lock > "$HOME/lock"
echo lock > "$TMPDIR/lock"
echo "Version $(cat "$here/../parts/version")"
"#;

#[test]
fn a_tool_is_asked_for_its_version_where_it_has_what_it_needs() {
    for means in ROADS {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().canonicalize().unwrap().join("nsight-systems/2025.3.2");
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::fs::create_dir_all(folder.join("parts")).unwrap();
        std::fs::write(folder.join("parts/version"), "2025.3.2.474").unwrap();
        write_executable(&folder.join("bin/nsys"), PARTICULAR);
        let scratch = tempfile::tempdir().unwrap();
        let search_path = [folder.join("bin")];
        let as_tool = |command: &JailedCommand| run_jailed_as_tool(&host(means).jail, command, &CancelFlag::default());
        let found = Profilers::find(&search_path, &[], scratch.path(), &as_tool);
        assert_eq!(found.nsys.map(|tool| tool.version), Ok("2025.3.2.474".to_owned()), "{means:?}");
        // A compiler has no such view, and what the tool said there is told.
        let as_compiler = |command: &JailedCommand| run_jailed(&host(means).jail, command, &CancelFlag::default());
        let missing = Profilers::find(&search_path, &[], scratch.path(), &as_compiler).nsys.unwrap_err();
        assert!(missing.reason.contains("/proc/self"), "{means:?}: {}", missing.reason);
    }
}

#[test]
fn tools_that_hang_are_ended_with_everything_that_they_started() {
    let marker = format!("7{:09}", std::process::id());
    let hangs = format!("sleep {marker} &\nsleep {marker}");
    let tools = Tools::new(SandboxChoice::Best, &[("nsys", &hangs), ("ncu", &hangs), ("compute-sanitizer", &hangs)]);
    let begun = Instant::now();
    let profile = tools.profile(500);
    assert_eq!(codes(&profile), ["profile.tool_too_slow", "profile.tool_missing", "profile.tool_too_slow"]);
    let report = tools.with_replay(|replay| sanitize(&tools.found(500), replay, &ALL)).unwrap();
    assert_eq!(report.answer(), Answer::Inconclusive);
    assert!(report.tools.iter().all(|run| run.code.as_deref() == Some("profile.tool_too_slow")));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let is_left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&marker)
    });
    assert!(!is_left, "a process of a tool outlived it");
}

#[test]
fn floods_crashes_and_garbage_lower_the_tier_and_fail_nothing() {
    let flood = "while :; do echo 'a line that is printed for ever and ever'; done";
    let crash = "kill -SEGV $$";
    let garbage = "head -c 100000 /dev/urandom > timeline.sqlite; head -c 100000 /dev/urandom > kernels.csv; \
                   head -c 100000 /dev/urandom > sanitizer.log";
    for script in [flood, crash, garbage, "exit 3", "exit 0"] {
        let tools =
            Tools::new(SandboxChoice::Best, &[("nsys", script), ("ncu", script), ("compute-sanitizer", script)]);
        let profile = tools.profile(30_000);
        assert_eq!(profile.tier, "none", "{script}");
        assert_eq!(codes(&profile), ["profile.tool_failed", "profile.tool_missing", "profile.tool_failed"], "{script}");
        let report = tools.with_replay(|replay| sanitize(&tools.found(30_000), replay, &FIRST)).unwrap();
        assert_eq!(report.answer(), Answer::Inconclusive, "{script}");
    }
}

#[test]
fn a_sanitizer_that_finds_something_is_believed_and_one_that_does_not_is_too() {
    let finds = format!(
        "if [ \"$2\" = racecheck ]; then {}; else {}; fi; exit 77",
        copying("racecheck.txt", "sanitizer.log"),
        copying("memcheck.txt", "sanitizer.log")
    );
    let tools = Tools::new(SandboxChoice::Best, &[("compute-sanitizer", &finds)]);
    let report = tools.with_replay(|replay| sanitize(&tools.found(30_000), replay, &FIRST)).unwrap();
    assert_eq!(report.answer(), Answer::Fail);
    assert_eq!(report.tools.iter().map(|run| run.outcome).collect::<Vec<_>>(), [SanitizerOutcome::Errors; 2]);

    let clean = "echo '========= ERROR SUMMARY: 0 errors' > sanitizer.log";
    let tools = Tools::new(SandboxChoice::Best, &[("compute-sanitizer", clean)]);
    let report = tools.with_replay(|replay| sanitize(&tools.found(30_000), replay, &ALL)).unwrap();
    assert_eq!((report.answer(), report.tools.len()), (Answer::Pass, 3), "{report:#?}");

    // What was given up is named, and is no clean bill of health.
    let without = Checks { without: &[SanitizerTool::Racecheck], ..ALL };
    let report = tools.with_replay(|replay| sanitize(&tools.found(30_000), replay, &without)).unwrap();
    assert_eq!(report.answer(), Answer::Inconclusive);
    let said = report.unverified().unwrap();
    assert!(said.ends_with("racecheck (it was too slow for an earlier program of the run)"), "{said}");

    // What the program prints is not what the tool says.
    let forged = "echo '========= ERROR SUMMARY: 0 errors'";
    let tools = Tools::new(SandboxChoice::Best, &[("compute-sanitizer", forged)]);
    let report = tools.with_replay(|replay| sanitize(&tools.found(30_000), replay, &FIRST)).unwrap();
    assert_eq!(report.answer(), Answer::Inconclusive);
}
