//! `profile`: why is a program so fast? On the `cpu` target: the compiler's report, and a roofline from peaks that are
//! measured on this machine with the flags of every program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::{MachineFacts, Toolchain};
use nightshift_protocol::measurement::{CompilerReport, Measurement};
use nightshift_protocol::profile::{Profile, roofline_share as roofline_share_of};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, TaskSpec};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{JailedCommand, Limits};
use nightshift_toolchain::build::disk_failure;
use nightshift_toolchain::toolchain::{self, Run};

/// The tier of this profile.
pub const TIER: &str = "compiler_report+analytic_roofline";

const ROOFLINE: &str = include_str!("../include/roofline.cpp");

/// Smallest and largest buffer that is copied, in bytes: twice the last-level cache in between. A virtual machine may
/// name the cache of a whole host; more than this would take longer than it tells.
const COPY_BYTES: std::ops::RangeInclusive<u64> = 32 << 20..=256 << 20;

/// So many times the measured peak are out of reach, with room for a clock that was slow just then.
const BEYOND_PEAK: f64 = 2.0;

const LIMITS: Limits = Limits {
    wall_ms: 30_000,
    cpu_s: 30,
    memory_bytes: 2 << 30,
    file_bytes: 64 << 20,
    processes: 64,
    output_bytes: 64 << 10,
};

/// The peak rates of a thread of this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// Floating-point operations per second in single precision.
    pub flops_per_s: f64,
    /// Bytes read and written per second when copying.
    pub bytes_per_s: f64,
    /// Size of the copied buffer in bytes.
    pub copy_bytes: u64,
}

/// Measures the peaks: builds a small program with the flags of every program and runs it. Takes about a second.
pub fn measure_peaks(
    toolchain: &Toolchain,
    machine: &MachineFacts,
    scratch: &Path,
    run: &Run<'_>,
) -> Result<Peaks, StepFailure> {
    let new_folder = || {
        let made = temporary_folder(scratch, "peaks-");
        made.map_err(|error| disk_failure(scratch, &error))
    };
    let built = new_folder()?;
    let source = built.path().join("roofline.cpp");
    std::fs::write(&source, ROOFLINE).map_err(|error| disk_failure(&source, &error))?;
    let compiler = PathBuf::from(&toolchain.path);
    let mut args: Vec<OsString> =
        toolchain.flags.iter().filter(|flag| *flag != "-shared").map(OsString::from).collect();
    args.extend(["roofline.cpp", "-o", "roofline"].map(OsString::from));
    let command = JailedCommand {
        read_only: toolchain::readable_folders(&compiler),
        program: compiler,
        args,
        scratch: built.path().to_path_buf(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned())],
        limits: LIMITS,
    };
    finished(&command, run, "built")?;

    let copy_bytes = machine.last_level_cache_bytes.map_or(*COPY_BYTES.start(), |cache| cache.saturating_mul(2));
    let copy_bytes = copy_bytes.clamp(*COPY_BYTES.start(), *COPY_BYTES.end());
    // A jail lets nothing run that it can write: the program lies in one folder and runs in another.
    let empty = new_folder()?;
    let command = JailedCommand {
        program: built.path().join("roofline"),
        args: vec![copy_bytes.to_string().into()],
        read_only: vec![built.path().to_path_buf()],
        scratch: empty.path().to_path_buf(),
        env: Vec::new(),
        limits: LIMITS,
    };
    let printed = finished(&command, run, "run")?;
    let (flops_per_s, bytes_per_s) = parse_peaks(&printed).ok_or_else(|| {
        StepFailure::retriable("profile.peaks_unknown", format!("the roofline program printed `{}`", printed.trim()))
    })?;
    Ok(Peaks { flops_per_s, bytes_per_s, copy_bytes })
}

fn finished(command: &JailedCommand, run: &Run<'_>, verb: &str) -> Result<String, StepFailure> {
    let result = run(command)?;
    if result.end == ProcessEnd::Finished {
        return Ok(String::from_utf8_lossy(&result.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&result.stderr).lines().next().unwrap_or_default().to_owned();
    let reason = format!("the roofline program could not be {verb}: {} {said}", result.end.describe());
    Err(StepFailure::retriable("profile.peaks_unknown", reason.trim().to_owned()))
}

fn parse_peaks(printed: &str) -> Option<(f64, f64)> {
    let value = |name: &str| {
        let word = printed.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        word.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)
    };
    Some((value("flops_per_s")?, value("bytes_per_s")?))
}

/// What a program cannot have done: more than [`BEYOND_PEAK`] times the operations that this machine's arithmetic units
/// can do in the time that it claims. Bytes say nothing here, because caches hold them. Peaks that were measured beside
/// other work may be too low: the caller asks again with fresh ones before it believes this.
#[must_use]
pub fn faster_than_roofline(peaks: &Peaks, spec: &TaskSpec, measurement: &Measurement) -> Option<Finding> {
    let flops = spec.flops.filter(|flops| flops.is_finite() && *flops > 0.0)?;
    let claimed = flops / measurement.candidate_median_ns * 1e9;
    (claimed > peaks.flops_per_s * BEYOND_PEAK).then(|| Finding {
        code: "faster_than_roofline".to_owned(),
        // The operations of an imported model are counted from its operators: a program may find a way that needs fewer.
        severity: if spec.torch.is_some() { Severity::Warning } else { Severity::Violation },
        message: format!(
            "{:.1} GFLOP/s by the task's count of operations, where this machine can do {:.1}: the work was not done, or the \
             task counts operations that it does not need",
            claimed / 1e9,
            peaks.flops_per_s / 1e9
        ),
        line: None,
    })
}

/// The profile of a measured program.
#[must_use]
pub fn profile(peaks: &Peaks, spec: &TaskSpec, compiler: &CompilerReport, measurement: &Measurement) -> Profile {
    let mut missing = vec![
        "hardware counters (cache misses, instructions per cycle, stalls): a program may not open them in its sandbox"
            .to_owned(),
        "time by function or line: no sampling profiler ran".to_owned(),
    ];
    if compiler.instructions == 0 {
        missing.push(
            match spec.form {
                CandidateForm::Native => {
                    "instruction counts: `objdump` is missing (package binutils) or could not read the library"
                }
                CandidateForm::Torch => "instruction counts: a program in Python is no library that could be read",
            }
            .to_owned(),
        );
    }
    let known = |value: Option<f64>| value.filter(|number| number.is_finite() && *number > 0.0);
    let (flops, bytes) = (known(spec.flops), known(spec.bytes));
    if flops.is_none() || bytes.is_none() {
        missing.push("place under the roofline: the task does not say both `flops` and `bytes`".to_owned());
    }
    let arithmetic_intensity = flops.zip(bytes).map(|(flops, bytes)| flops / bytes);
    let mut roofline_bound = "unknown";
    let mut roofline_share = None;
    if let Some(intensity) = arithmetic_intensity {
        let memory_roof = intensity * peaks.bytes_per_s;
        roofline_bound = if memory_roof < peaks.flops_per_s { "memory" } else { "compute" };
        let achieved = flops.map(|flops| flops / measurement.candidate_median_ns * 1e9);
        let share = achieved.map(|achieved| achieved / memory_roof.min(peaks.flops_per_s));
        if share.is_some_and(|share| roofline_share_of(share).is_none()) {
            missing.push(format!(
                "the roof that applies: the program is faster than a copy of {} MiB allows, so that its data stay in a cache, or the \
                 copy was slowed down",
                peaks.copy_bytes >> 20
            ));
        }
        roofline_share = share.and_then(roofline_share_of);
    }
    Profile {
        tier: TIER.to_owned(),
        missing,
        arithmetic_intensity,
        peak_flops_per_s: peaks.flops_per_s,
        peak_bytes_per_s: peaks.bytes_per_s,
        roofline_share,
        roofline_bound: roofline_bound.to_owned(),
        compiler: compiler.clone(),
        ..Profile::default()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::machine::SandboxReport;
    use nightshift_protocol::measurement::Interval;

    use super::*;

    const PEAKS: Peaks = Peaks { flops_per_s: 100e9, bytes_per_s: 20e9, copy_bytes: 64 << 20 };

    fn spec(extra: &str) -> TaskSpec {
        let text = format!(
            "schema = 1\nname = \"t\"\ntitle = \"t\"\ndescription = \"t\"\ntarget = \"cpu\"\nreference = \"r.cpp\"\n\
             inputs = []\noutputs = []\n{extra}\n[tolerance]\natol = 1e-5\nrtol = 1e-5\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn measurement(candidate_median_ns: f64) -> Measurement {
        let hardware = nightshift_toolchain::machine::read_hardware(Path::new("/nowhere"), None);
        Measurement {
            process_pair_speedups: Vec::new(),
            precision: nightshift_protocol::task::PrecisionPolicy::default(),
            speedup: Interval { estimate: 2.0, low: 1.9, high: 2.1 },
            confidence: 0.95,
            baseline_median_ns: candidate_median_ns * 2.0,
            candidate_median_ns,
            baseline_cv: 0.0,
            candidate_cv: 0.0,
            baseline_samples_ns: Vec::new(),
            candidate_samples_ns: Vec::new(),
            outside_to_inside_time: 1.0,
            achieved_flops_per_s: None,
            achieved_bytes_per_s: None,
            precise: true,
            baseline: String::new(),
            sandbox: SandboxReport::default(),
            machine: nightshift_toolchain::machine::facts(hardware, None, SandboxReport::default()),
            device: None,
            verification: None,
            cost: Vec::new(),
        }
    }

    fn close(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn a_program_of_low_intensity_is_bound_by_memory() {
        // 1e9 operations on 4e9 bytes in 0.5 s: 2e9 operations per second of the 5e9 that memory allows.
        let profile = profile(&PEAKS, &spec("flops = 1e9\nbytes = 4e9"), &CompilerReport::default(), &measurement(5e8));
        assert_eq!(profile.roofline_bound, "memory");
        assert!(close(profile.arithmetic_intensity, 0.25));
        assert!(close(profile.roofline_share, 0.4));
    }

    #[test]
    fn a_program_of_high_intensity_is_bound_by_arithmetic() {
        let profile =
            profile(&PEAKS, &spec("flops = 1e11\nbytes = 1e9"), &CompilerReport::default(), &measurement(4e9));
        assert_eq!(profile.roofline_bound, "compute");
        assert!(close(profile.roofline_share, 0.25));
    }

    #[test]
    fn what_cannot_be_computed_is_said_to_be_missing() {
        let profile = profile(&PEAKS, &spec("flops = 1e9"), &CompilerReport::default(), &measurement(1e9));
        assert_eq!((profile.roofline_bound.as_str(), profile.roofline_share), ("unknown", None));
        for word in ["hardware counters", "objdump", "`bytes`"] {
            assert!(profile.missing.iter().any(|line| line.contains(word)), "{word}: {:?}", profile.missing);
        }
    }

    #[test]
    fn a_program_in_python_lacks_no_tool() {
        let spec = TaskSpec { form: CandidateForm::Torch, ..spec("") };
        let profile = profile(&PEAKS, &spec, &CompilerReport::default(), &measurement(1e9));
        assert!(!profile.missing.iter().any(|line| line.contains("objdump")), "{:?}", profile.missing);
        assert!(profile.missing.iter().any(|line| line.contains("no library")), "{:?}", profile.missing);
    }

    #[test]
    fn a_program_that_lives_in_a_cache_is_not_said_to_exceed_the_machine() {
        let report = CompilerReport { instructions: 10, ..CompilerReport::default() };
        let profile = profile(&PEAKS, &spec("flops = 1e9\nbytes = 4e9"), &report, &measurement(1e7));
        assert_eq!(profile.roofline_share, None);
        assert!(profile.missing.iter().any(|line| line.contains("cache")));
        assert!(!profile.missing.iter().any(|line| line.contains("objdump")));
    }

    #[test]
    fn only_two_positive_numbers_are_peaks() {
        assert_eq!(parse_peaks("flops_per_s=1.5e+11 bytes_per_s=2e10\n"), Some((1.5e11, 2e10)));
        for printed in ["", "flops_per_s=1e9", "flops_per_s=0 bytes_per_s=1", "flops_per_s=nan bytes_per_s=1"] {
            assert_eq!(parse_peaks(printed), None, "{printed}");
        }
    }
}
