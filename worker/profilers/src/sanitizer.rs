//! Runs a program under compute-sanitizer: memory errors, races and uninitialized reads.

mod text;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use nightshift_protocol::profile::{SanitizeReport, SanitizerIssue, SanitizerOutcome, SanitizerRun, SanitizerTool};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};

use self::text::Said;
use super::replay::{Replay, read_plain_file};
use super::tier::{self, ToolFailure};
use super::tools::Profilers;
use crate::subject::Checks;
use crate::tool::{MissingTool, Tool};
use nightshift_sandbox::process::{Limits, ProcessResult};

/// Status with which the tool ends when it found something, and the program nothing wrong with itself.
const FOUND_STATUS: i32 = 77;

/// So many times as long as a call takes `racecheck` to look at it, where threads share memory in every step: on an H200 a
/// product of 2048 rows takes it 37 s, and 0.9 ms by itself.
const RACES_SLOWDOWN: f64 = 40_000.0;

/// Errors that the tool describes; the rest is counted.
const PRINTED_ERRORS: u32 = 100;

/// Findings of one check that become observations about compliance.
const MAX_FINDINGS: usize = 8;

/// Maximum number of bytes of a log that are read, and that are kept.
const MAX_LOG_BYTES: u64 = 4 << 20;
const MAX_KEPT_BYTES: usize = 256 << 10;

/// Limits of one check, beside that of its time.
const LIMITS: Limits = Limits {
    wall_ms: 0,
    // Nearly all of its threads, for as long as it may run.
    cpu_s: 3_600,
    memory_bytes: 64 << 30,
    file_bytes: 64 << 20,
    processes: 512,
    output_bytes: 1 << 20,
};

/// File in which the tool says what it found. The program's own words go elsewhere, so that it cannot say it is clean.
const LOG: &str = "sanitizer.log";

/// Extension of candidates' source files; an access in another file belongs to a library.
const SOURCE_ENDING: &str = ".cu";

/// Carries out the checks that are wanted.
pub(super) fn sanitize(
    profilers: &Profilers,
    replay: &Replay<'_>,
    checks: &Checks<'_>,
) -> Result<SanitizeReport, StepFailure> {
    let mut report = SanitizeReport::default();
    let mut log = String::new();
    let limit_ms = profilers.limits.sanitizer_ms;
    for tool in checks.wanted() {
        let (run, printed) = match (&profilers.compute_sanitizer, not_begun(*tool, checks, limit_ms)) {
            (Ok(_), Some(trouble)) => (without_answer(*tool, trouble, 0), String::new()),
            (Ok(program), None) => check(*tool, program, replay, limit_ms)?,
            (Err(missing), _) => (missing_run(*tool, missing), String::new()),
        };
        report.findings.extend(findings(&run));
        if run.outcome != SanitizerOutcome::Clean && !printed.is_empty() {
            log.extend(["# ", tool.as_str(), "\n", beginning(&printed, MAX_KEPT_BYTES), "\n"]);
        }
        report.tools.push(run);
    }
    if !log.is_empty() {
        report.log = Some((replay.put)(log.as_bytes())?);
    }
    Ok(report)
}

/// Returns the result of a skipped check of a program without a library to replay.
pub(super) fn nothing(wanted: &[SanitizerTool]) -> SanitizeReport {
    let trouble = || ToolFailure {
        code: "profile.tool_missing",
        reason: "programs of PyTorch are not repeated under this tool".to_owned(),
        remedy: None,
    };
    let tools = wanted.iter().map(|tool| without_answer(*tool, trouble(), 0)).collect();
    SanitizeReport { tools, ..SanitizeReport::default() }
}

fn arguments(tool: SanitizerTool, folder: &Path, replay: &Replay<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--tool".into(), tool.as_str().into()];
    args.extend(["--error-exitcode".into(), FOUND_STATUS.to_string().into()]);
    args.extend(["--print-limit".into(), PRINTED_ERRORS.to_string().into()]);
    args.extend(["--target-processes".into(), "all".into()]);
    if tool == SanitizerTool::Memcheck {
        // Failed API calls of libraries are no errors of the program, and would use up the printed errors.
        args.extend(["--report-api-errors".into(), "no".into()]);
    }
    args.extend(["--log-file".into(), folder.join(LOG).into()]);
    // One call without warm-up, because an error already occurs in the first call.
    args.extend(replay.command(0, 1));
    args
}

fn check(
    tool: SanitizerTool,
    program: &Tool,
    replay: &Replay<'_>,
    wall_ms: u64,
) -> Result<(SanitizerRun, String), StepFailure> {
    let folder = replay.folder(tool.as_str())?;
    let limits = Limits { wall_ms, ..LIMITS };
    let ended = replay.run_tool(program, arguments(tool, folder.path(), replay), folder.path(), limits)?;
    let result = match ended {
        Ok(result) => result,
        Err(reason) => return Ok((without_answer(tool, ToolFailure::plain(reason), 0), String::new())),
    };
    let log = read_plain_file(&folder.path().join(LOG), MAX_LOG_BYTES);
    let printed = [result.stderr.as_slice(), result.stdout.as_slice()].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let kept = if log.is_empty() { printed.clone() } else { log.clone() };
    Ok((judge(tool, &text::parse(&log), &result, &format!("{log}\n{printed}")), kept))
}

/// Judges a check by the tool's output and exit status. A clean result needs both.
fn judge(tool: SanitizerTool, said: &Said, result: &ProcessResult, printed: &str) -> SanitizerRun {
    let mut issues = said.issues.clone();
    let described_errors = issues.iter().any(|issue| issue.is_error);
    for issue in &mut issues {
        issue.is_error = issue.is_error && counts_as_error(tool, issue);
    }
    let listed_errors: u64 = issues.iter().filter(|issue| issue.is_error).map(|issue| issue.records).sum();
    let listed: u64 = issues.iter().map(|issue| issue.records).sum();
    let not_described = said.errors.unwrap_or(0).saturating_sub(listed);
    // Where no described error counts against the program, the others are taken to be of the same origin.
    let excused = described_errors && listed_errors == 0;
    let (not_listed, excused_errors) = if excused { (0, not_described) } else { (not_described, 0) };
    let listed_warnings = issues.iter().filter(|issue| !issue.is_error).map(|issue| issue.records).sum();
    let warnings = said.warnings.saturating_add(listed_warnings).saturating_add(excused_errors);
    let errors = listed_errors.saturating_add(not_listed);
    let looked_to_the_end = said.errors.is_some() && said.failure.is_none();
    let ended_well = matches!(result.end, ProcessEnd::Finished | ProcessEnd::Exited { status: FOUND_STATUS });
    let claims_clean = result.end == ProcessEnd::Finished;
    let mut run = SanitizerRun {
        tool,
        outcome: SanitizerOutcome::Unavailable,
        code: None,
        reason: None,
        remedy: None,
        errors,
        warnings,
        issues: issues.into_iter().map(text::Issue::into_stored).collect(),
        not_listed,
        wall_ms: result.wall_ms,
    };
    if errors > 0 {
        run.outcome = SanitizerOutcome::Errors;
        if !looked_to_the_end {
            run.reason = Some(format!("it did not look to the end: {}", result.end.describe()));
        }
        return run;
    }
    if looked_to_the_end && ended_well && warnings > 0 {
        run.outcome = SanitizerOutcome::Warnings;
        return run;
    }
    if looked_to_the_end && claims_clean {
        run.outcome = SanitizerOutcome::Clean;
        return run;
    }
    let trouble = match &said.failure {
        Some(failure) => tier::known_trouble(printed).unwrap_or_else(|| {
            let replay = printed.lines().find_map(|line| line.strip_prefix("replay: "));
            ToolFailure::plain(replay.map_or_else(|| failure.clone(), |said| format!("{failure}: {said}")))
        }),
        None if looked_to_the_end => ToolFailure {
            code: "profile.program_failed",
            reason: format!("the program did not end well under the tool: {}", result.end.describe()),
            remedy: None,
        },
        None => tier::trouble(result, printed),
    };
    run.code = Some(trouble.code.to_owned());
    run.reason = Some(trouble.reason);
    run.remedy = trouble.remedy;
    run
}

/// Errors of the interfaces come from libraries that ask what a device can do, and a library may read what it does not
/// use: neither is held against the program. What its own source does is.
fn counts_as_error(tool: SanitizerTool, issue: &text::Issue) -> bool {
    match tool {
        SanitizerTool::Memcheck => !issue.is_api,
        SanitizerTool::Racecheck => true,
        SanitizerTool::Initcheck => !issue.is_api && is_own(issue.file.as_deref()),
    }
}

fn is_own(file: Option<&str>) -> bool {
    file.is_some_and(|file| file.ends_with(SOURCE_ENDING))
}

/// Explains why a check is skipped: it would exceed its time limit, and block the device for other steps meanwhile.
fn not_begun(tool: SanitizerTool, checks: &Checks<'_>, limit_ms: u64) -> Option<ToolFailure> {
    if checks.without.contains(&tool) {
        return Some(too_slow("it was too slow for an earlier program of the run".to_owned()));
    }
    let call_ns = checks.shared_memory_call_ns.filter(|_| tool == SanitizerTool::Racecheck)?;
    let expected = Duration::try_from_secs_f64(call_ns * RACES_SLOWDOWN / 1e9).unwrap_or(Duration::MAX);
    (expected > Duration::from_millis(limit_ms)).then(|| {
        too_slow(format!(
            "a call takes {:.1} ms, and looking for races in its shared memory about {} s: more than the {} s that it may take",
            call_ns / 1e6,
            expected.as_secs(),
            limit_ms / 1_000
        ))
    })
}

fn too_slow(reason: String) -> ToolFailure {
    let remedy = "name a smaller shape in the task, as one of its `variants`".to_owned();
    ToolFailure { code: "profile.tool_too_slow", reason, remedy: Some(remedy) }
}

fn missing_run(tool: SanitizerTool, missing: &MissingTool) -> SanitizerRun {
    let trouble = ToolFailure {
        code: "profile.tool_missing",
        reason: missing.reason.clone(),
        remedy: Some(missing.remedy.clone()),
    };
    without_answer(tool, trouble, 0)
}

fn without_answer(tool: SanitizerTool, trouble: ToolFailure, wall_ms: u64) -> SanitizerRun {
    SanitizerRun {
        tool,
        outcome: SanitizerOutcome::Unavailable,
        code: Some(trouble.code.to_owned()),
        reason: Some(trouble.reason),
        remedy: trouble.remedy,
        errors: 0,
        warnings: 0,
        issues: Vec::new(),
        not_listed: 0,
        wall_ms,
    }
}

/// Returns the errors of a check as findings, the most frequent ones first.
fn findings(run: &SanitizerRun) -> Vec<Finding> {
    let mut issues: Vec<&SanitizerIssue> = run.issues.iter().collect();
    issues.sort_by_key(|issue| (!issue.is_error, std::cmp::Reverse(issue.count)));
    let mut findings: Vec<Finding> = issues
        .into_iter()
        .take(MAX_FINDINGS)
        .map(|issue| Finding {
            code: run.tool.as_str().to_owned(),
            severity: if issue.is_error { Severity::Violation } else { Severity::Warning },
            message: format!("{}: {}", run.tool.as_str(), describe(issue)),
            line: issue.line.filter(|_| is_own(issue.file.as_deref())),
        })
        .collect();
    if run.not_listed > 0 {
        findings.push(Finding {
            code: run.tool.as_str().to_owned(),
            severity: Severity::Violation,
            message: format!(
                "{}: {} more errors, which the tool counted and did not describe",
                run.tool.as_str(),
                run.not_listed
            ),
            line: None,
        });
    }
    findings
}

/// Describes an error in one sentence.
fn describe(issue: &SanitizerIssue) -> String {
    let (what, how) = issue.kind.split_once(", ").unwrap_or((&issue.kind, ""));
    let how = if how.is_empty() { String::new() } else { format!(", {how},") };
    let size = issue.size_bytes.map(|size_bytes| format!(" of {size_bytes} bytes")).unwrap_or_default();
    let kernel = issue.kernel.as_deref().map(|kernel| format!(" in {kernel}")).unwrap_or_default();
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        (Some(file), None) => format!(" at {file}"),
        (None, _) => String::new(),
    };
    let times = if issue.count > 1 { format!(", {} times", issue.count) } else { String::new() };
    let first = match (issue.thread, issue.block) {
        (Some([x, y, z]), Some([bx, by, bz])) => format!(", first in thread ({x},{y},{z}) of block ({bx},{by},{bz})"),
        _ => String::new(),
    };
    let mut said = vec![format!("{what}{size}{how}{kernel}{place}{times}{first}")];
    said.extend(issue.details.iter().cloned());
    said.join("; ")
}

/// The beginning of a text, so many bytes at most.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
