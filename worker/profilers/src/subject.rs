//! The profiled program, and the requested checks.

use nightshift_protocol::cuda_build::CudaBuild;
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::SanitizerTool;

/// Facts about the profiled program.
#[derive(Debug, Clone, Copy)]
pub struct ProfiledProgram<'a> {
    /// The compiler's report.
    pub compiler: &'a CompilerReport,
    /// Facts from nvcc and from the disassembly of its kernels.
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

/// The checks of the sanitizers.
#[derive(Debug, Clone, Copy)]
pub struct Checks<'a> {
    /// Also check for uninitialized reads, in addition to memory errors and races.
    pub thorough: bool,
    /// Checks to skip: they ran already, or were too slow for a similar program.
    pub without: &'a [SanitizerTool],
    /// About how long a call of the replay takes of a program that uses shared memory, in nanoseconds.
    pub shared_memory_call_ns: Option<f64>,
}

impl Checks<'_> {
    pub(crate) fn wanted(&self) -> &'static [SanitizerTool] {
        const ALL: [SanitizerTool; 3] = [SanitizerTool::Memcheck, SanitizerTool::Racecheck, SanitizerTool::Initcheck];
        &ALL[..if self.thorough { 3 } else { 2 }]
    }
}
