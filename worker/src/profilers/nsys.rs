//! Nsight Systems in front of a program: what ran when.

mod export;

use std::ffi::OsString;
use std::path::Path;

use nightshift_protocol::profile::{TierPurpose, TierReport, Timeline};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;

use super::chrome;
use super::replay::{Replay, is_plain_file};
use super::tier::{self, Trouble};
use super::timeline::{Calls, sum_up};
use super::tools::{Profilers, missing_library};
use crate::process::{Limits, ProcessResult};

/// Calls of the program before those that are traced, so that loading its kernels is not among them.
const WARMUPS: u32 = 2;

/// Calls that are traced: enough to see how much they differ.
const CALLS: u32 = 5;

/// Limits of a trace, beside that of its time.
const LIMITS: Limits = Limits {
    wall_ms: 0,
    cpu_s: 60,
    memory_bytes: 64 << 30,
    file_bytes: 512 << 20,
    processes: 512,
    output_bytes: 1 << 20,
};

/// Name of the report, without an ending.
const REPORT: &str = "timeline";

/// What a trace gave.
#[derive(Debug)]
pub(super) struct Traced {
    /// Summed up.
    pub(super) timeline: Timeline,
    /// As a file for people.
    pub(super) trace: Vec<u8>,
    /// The kernels of the first call in the order of their launches, by their names with and without parameters.
    pub(super) launched: Vec<(String, String)>,
}

/// Traces some calls. The tier says how it went.
pub(super) fn trace(profilers: &Profilers, replay: &Replay<'_>) -> Result<(TierReport, Option<Traced>), StepFailure> {
    let tool = match &profilers.nsys {
        Ok(tool) => tool,
        Err(missing) => return Ok((tier::missing(TierPurpose::Timeline, "nsys", missing), None)),
    };
    let folder = replay.folder("nsys")?;
    let limits = Limits { wall_ms: profilers.limits.nsys_ms, ..LIMITS };
    let ended = replay.run_tool(tool, profile_arguments(folder.path(), replay), folder.path(), limits)?;
    let mut report = tier::used(TierPurpose::Timeline, "nsys", &tool.version);
    let result = match ended {
        Ok(result) => result,
        Err(reason) => return Ok((tier::failed(report, Trouble::plain(reason)), None)),
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
            Err(reason) => return Ok((tier::failed(report, Trouble::plain(reason)), None)),
        }
    }
    match export::read(&export) {
        Ok(activity) => {
            let calls = Calls::find(&activity, CALLS);
            let timeline = sum_up(&activity, &calls);
            let first = calls.spans.first();
            let launched = activity
                .kernels
                .iter()
                .filter(|kernel| {
                    first.is_some_and(|call| (call.start_ns..=call.end_ns).contains(&kernel.span.start_ns))
                })
                .map(|kernel| (kernel.name.to_string(), kernel.short.to_string()))
                .collect();
            report.reason = caution(&result, &calls, activity.cut);
            Ok((report, Some(Traced { trace: chrome::trace(&activity, &calls), timeline, launched })))
        }
        Err(error) => Ok((tier::failed(report, Trouble::plain(format!("the export cannot be used: {error}"))), None)),
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

/// Why there is no report.
fn no_report(result: &ProcessResult, folder: &Path) -> Trouble {
    let printed = [result.stderr.as_slice(), result.stdout.as_slice()].concat();
    let printed = String::from_utf8_lossy(&printed);
    if let Some(library) = missing_library(&printed) {
        return Trouble {
            code: "profile.library_missing",
            reason: format!("nsys needs the library {library} to make its report"),
            remedy: Some(
                "install the packages libdw1 and libelf1 (Debian, Ubuntu) or elfutils-libs (Fedora, Red Hat)"
                    .to_owned(),
            ),
        };
    }
    if is_plain_file(&folder.join(format!("{REPORT}.qdstrm"))) {
        return Trouble {
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

/// What is to be said about a trace that can be used all the same.
fn caution(result: &ProcessResult, calls: &Calls, cut: bool) -> Option<String> {
    let mut said = Vec::new();
    if result.end != ProcessEnd::Finished {
        said.push(format!("the traced program did not end well ({})", result.end.describe()));
    }
    if !calls.marked {
        said.push("the calls of the program could not be told apart from the rest of its process".to_owned());
    }
    if cut {
        said.push(format!("only the first {} events of a kind were read", export::MAX_EVENTS));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests;
