//! Nsight Systems in front of a program: what ran when.

mod export;

use std::ffi::OsString;
use std::path::Path;

use nightshift_protocol::profile::{TierPurpose, TierReport};
use nightshift_protocol::step::StepFailure;

use super::replay::{Replay, is_plain_file};
use super::tier::{self, ToolFailure};
use super::tools::{Profilers, missing_library};
use super::traced::{CALLS, Traced, WARMUPS, caution};
use nightshift_sandbox::process::{Limits, ProcessResult};

/// Limits of a trace, beside that of its time.
const LIMITS: Limits = Limits {
    wall_ms: 0,
    cpu_s: 60,
    memory_bytes: 64 << 30,
    file_bytes: 512 << 20,
    processes: 512,
    output_bytes: 1 << 20,
};

/// A Python process that loads `PyTorch` may take so many times the limit.
const PYTHON_PATIENCE: u64 = 4;

/// Name of the report, without an ending.
const REPORT: &str = "timeline";

/// Traces some calls. The tier says how it went.
pub(super) fn trace(profilers: &Profilers, replay: &Replay<'_>) -> Result<(TierReport, Option<Traced>), StepFailure> {
    let tool = match &profilers.nsys {
        Ok(tool) => tool,
        Err(missing) => return Ok((tier::missing(TierPurpose::Timeline, "nsys", missing), None)),
    };
    let folder = replay.folder("nsys")?;
    let patience = if replay.in_python { PYTHON_PATIENCE } else { 1 };
    let limits = Limits { wall_ms: profilers.limits.nsys_ms.saturating_mul(patience), ..LIMITS };
    let ended = replay.run_tool(tool, profile_arguments(folder.path(), replay), folder.path(), limits)?;
    let mut report = tier::used(TierPurpose::Timeline, "nsys", &tool.version);
    let result = match ended {
        Ok(result) => result,
        Err(reason) => return Ok((tier::failed(report, ToolFailure::plain(reason)), None)),
    };
    report.wall_ms = Some(result.wall_ms);
    let export = folder.path().join(format!("{REPORT}.sqlite"));
    if !is_plain_file(&export) {
        let raw = folder.path().join(format!("{REPORT}.nsys-rep"));
        if !is_plain_file(&raw) {
            return Ok((tier::failed(report, no_report(&result, folder.path())), None));
        }
        let limits = Limits { wall_ms: profilers.limits.export_ms, ..LIMITS };
        let exported = replay.run_tool(tool, export_arguments(folder.path()), folder.path(), limits)?;
        match exported {
            Ok(exported) => {
                report.wall_ms = Some(result.wall_ms.saturating_add(exported.wall_ms));
                if !is_plain_file(&export) {
                    return Ok((tier::failed(report, no_report(&exported, folder.path())), None));
                }
            }
            Err(reason) => return Ok((tier::failed(report, ToolFailure::plain(reason)), None)),
        }
    }
    match export::read(&export) {
        Ok(activity) => {
            let traced = Traced::of(&activity, CALLS);
            report.reason = caution(&result, traced.marked, activity.cut.then_some(export::MAX_EVENTS));
            Ok((report, Some(traced)))
        }
        Err(error) => {
            Ok((tier::failed(report, ToolFailure::plain(format!("the export cannot be used: {error}"))), None))
        }
    }
}

fn profile_arguments(folder: &Path, replay: &Replay<'_>) -> Vec<OsString> {
    let mut output = OsString::from("--output=");
    output.push(folder.join(REPORT));
    let mut args: Vec<OsString> =
        ["profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none"].map(OsString::from).to_vec();
    args.push("--cuda-graph-trace=node".into());
    args.push("--export=sqlite".into());
    args.push("--force-overwrite=true".into());
    args.push(output);
    args.extend(replay.command(WARMUPS, CALLS));
    args
}

fn export_arguments(folder: &Path) -> Vec<OsString> {
    let mut output = OsString::from("--output=");
    output.push(folder.join(format!("{REPORT}.sqlite")));
    vec![
        "export".into(),
        "--type=sqlite".into(),
        "--force-overwrite=true".into(),
        output,
        folder.join(format!("{REPORT}.nsys-rep")).into(),
    ]
}

/// Explains a missing report.
fn no_report(result: &ProcessResult, folder: &Path) -> ToolFailure {
    let printed = [result.stderr.as_slice(), result.stdout.as_slice()].concat();
    let printed = String::from_utf8_lossy(&printed);
    if let Some(library) = missing_library(&printed) {
        return ToolFailure {
            code: "profile.library_missing",
            reason: format!("nsys needs the library {library} to make its report"),
            remedy: Some(
                "install the packages libdw1 and libelf1 (Debian, Ubuntu) or elfutils-libs (Fedora, Red Hat)"
                    .to_owned(),
            ),
        };
    }
    if is_plain_file(&folder.join(format!("{REPORT}.qdstrm"))) {
        return ToolFailure {
            code: "profile.library_missing",
            reason: "nsys traced the program and could not make a report of it".to_owned(),
            remedy: Some(
                "the nsys of Nsight Compute needs libdw.so.1 for that: install the packages libdw1 and libelf1 (Debian, \
                 Ubuntu) or elfutils-libs (Fedora, Red Hat), or Nsight Systems itself"
                    .to_owned(),
            ),
        };
    }
    tier::trouble(result, &printed)
}

#[cfg(test)]
mod tests;
