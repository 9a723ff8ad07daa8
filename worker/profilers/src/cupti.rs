//! CUPTI: the timeline of a program that watches itself, where no other tool can be put in front of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use nightshift_protocol::profile::{CopyDirection, TierPurpose, TierReport};
use nightshift_protocol::step::StepFailure;

use super::activity::{Activity, ApiCall, Kernel, Span, Transfer, direction, without_version};
use super::replay::{Replay, read_plain_file};
use super::tier::{self, ToolFailure};
use super::tools::Profilers;
use super::traced::{CALLS, Traced, WARMUPS, caution};
use crate::cupti_tracer::DeviceTrace;
use crate::tool::{MissingTool, Tool};
use nightshift_sandbox::process::Limits;
use nightshift_toolchain::nvcc::readable;

/// Limits of a trace, beside that of its time.
const LIMITS: Limits = Limits {
    wall_ms: 0,
    cpu_s: 60,
    memory_bytes: 64 << 30,
    file_bytes: MAX_TRACE_BYTES,
    processes: 64,
    output_bytes: 1 << 20,
};

/// Largest trace that is read, in bytes.
const MAX_TRACE_BYTES: u64 = 128 << 20;

/// Name of the trace.
const TRACE: &str = "trace.json";

/// Lets the replay trace some calls of its own. The tier says how it went.
pub(super) fn trace(profilers: &Profilers, replay: &Replay<'_>) -> Result<(TierReport, Option<Traced>), StepFailure> {
    let tool = match &profilers.cupti {
        Ok(tool) => tool,
        Err(missing) => return Ok((tier::missing(TierPurpose::Timeline, "cupti", missing), None)),
    };
    if replay.in_python {
        let reason = "this tier watches libraries, and the program is a file of Python".to_owned();
        let missing = MissingTool {
            reason,
            remedy: "install Nsight Systems, which watches both".to_owned(),
            did_not_answer: false,
        };
        return Ok((tier::missing(TierPurpose::Timeline, "cupti", &missing), None));
    }
    let folder = replay.folder("cupti")?;
    let path = folder.path().join(TRACE);
    let mut args: Vec<OsString> = replay.command(WARMUPS, CALLS);
    args.extend([tool.path.clone().into(), path.clone().into()]);
    let program = Tool { path: PathBuf::from(args.remove(0)), ..tool.clone() };
    let limits = Limits { wall_ms: profilers.limits.nsys_ms, ..LIMITS };
    let mut report = tier::used(TierPurpose::Timeline, "cupti", &tool.version);
    let result = match replay.run_tool(&program, args, folder.path(), limits)? {
        Ok(result) => result,
        Err(reason) => return Ok((tier::failed(report, ToolFailure::plain(reason)), None)),
    };
    report.wall_ms = Some(result.wall_ms);
    let text = read_plain_file(&path, MAX_TRACE_BYTES);
    if text.is_empty() {
        let printed = [result.stderr.as_slice(), result.stdout.as_slice()].concat();
        return Ok((tier::failed(report, tier::trouble(&result, &String::from_utf8_lossy(&printed))), None));
    }
    match activity_of(&text) {
        Ok((activity, dropped)) => {
            let traced = Traced::of(&activity, CALLS);
            let kept = activity.kernels.len().max(activity.copies.len()).max(activity.api.len());
            report.reason = caution(&result, traced.marked, (dropped > 0).then_some(kept));
            Ok((report, Some(traced)))
        }
        Err(reason) => Ok((tier::failed(report, ToolFailure::plain(reason)), None)),
    }
}

/// What was traced, and how many events found no room. The program under test shares a process with its trace: it is read
/// without trust.
fn activity_of(text: &str) -> Result<(Activity, u64), String> {
    let trace: DeviceTrace =
        serde_json::from_str(text).map_err(|error| format!("its trace cannot be read: {error}"))?;
    let names: Vec<Arc<str>> = trace.names.iter().map(|name| Arc::from(readable(name))).collect();
    let name =
        |number: usize| names.get(number).filter(|name| !name.is_empty()).cloned().unwrap_or("(nameless)".into());
    let begins = trace.kernels.iter().map(|kernel| kernel.start_ns);
    let begins = begins.chain(trace.copies.iter().map(|copy| copy.start_ns));
    let origin = begins.chain(trace.calls.iter().map(|call| call.start_ns)).filter(|start| *start > 0).min();
    let Some(origin) = origin else {
        return Err(
            "it holds no CUDA activity: the program started no device work, or it could not be traced".to_owned()
        );
    };
    let span = |start_ns: u64, end_ns: u64| {
        let (start_ns, end_ns) = (start_ns.checked_sub(origin)?, end_ns.checked_sub(origin)?);
        (start_ns <= end_ns).then_some(Span { start_ns, end_ns })
    };
    let extents = |extents: [i32; 3]| extents.map(|extent| u64::try_from(extent).unwrap_or(0));
    let mut activity = Activity {
        kernels: trace
            .kernels
            .iter()
            .filter_map(|kernel| {
                let text = name(kernel.name);
                Some(Kernel {
                    span: span(kernel.start_ns, kernel.end_ns)?,
                    stream: u64::from(kernel.stream),
                    correlation: u64::from(kernel.correlation),
                    short: bare_name(&text).into(),
                    name: text,
                    mangled: trace.names.get(kernel.name).map(|name| Arc::from(name.as_str())),
                    grid: extents(kernel.grid),
                    block: extents(kernel.block),
                    registers: u64::from(kernel.registers),
                    shared_bytes: u64::try_from(kernel.shared_bytes).unwrap_or(0),
                })
            })
            .collect(),
        copies: trace
            .copies
            .iter()
            .filter_map(|copy| {
                Some(Transfer {
                    span: span(copy.start_ns, copy.end_ns)?,
                    stream: u64::from(copy.stream),
                    correlation: u64::from(copy.correlation),
                    direction: copy.direction.map_or(CopyDirection::Set, |kind| direction(Some(i64::from(kind)))),
                    bytes: copy.bytes,
                })
            })
            .collect(),
        api: trace
            .calls
            .iter()
            .filter_map(|call| {
                Some(ApiCall {
                    span: span(call.start_ns, call.end_ns)?,
                    name: without_version(&name(call.name)).into(),
                    thread: u64::from(call.thread),
                    correlation: u64::from(call.correlation),
                })
            })
            .collect(),
        cut: trace.dropped > 0,
    };
    activity.kernels.sort_by_key(|kernel| kernel.span);
    activity.copies.sort_by_key(|copy| copy.span);
    activity.api.sort_by_key(|call| call.span);
    Ok((activity, trace.dropped))
}

/// The name of a kernel without what it returns, where it is declared, and its parameters: what ncu selects by.
fn bare_name(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut end = name.len();
    let named = name.replace("(anonymous namespace)", "_anonymous_namespace_");
    // Of the same length, so that places in the one are places in the other.
    debug_assert_eq!(named.len(), name.len());
    let mut start = 0;
    for (place, character) in named.char_indices() {
        match character {
            '<' if depth == 0 => {
                end = place;
                depth += 1;
            }
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => {
                end = end.min(place);
                break;
            }
            ' ' | ':' if depth == 0 => {
                start = place + 1;
                end = name.len();
            }
            _ => {}
        }
    }
    name.get(start..end.max(start)).filter(|bare| !bare.is_empty()).unwrap_or(name)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
