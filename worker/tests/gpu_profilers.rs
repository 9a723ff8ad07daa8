//! The real profilers and sanitizers on a real device, in the jail. Where there is no GPU, or a tool is missing, a test says
//! what it could not try.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "support/cuda.rs"]
#[expect(dead_code, unreachable_pub, clippy::print_stdout, reason = "each test file uses a part of it")]
mod cuda;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cuda::{Gpu, Workshop, gpu, host, program, run_all, task};
use nightshift_evaluator::runner::ReplayRequest;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_profilers::{Checks, MissingTool, ProfiledProgram, Profilers, Replay, profile, sanitize};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::profile::{Profile, SanitizeReport, SanitizerOutcome};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::Answer;
use nightshift_sandbox::process::{CancelFlag, JailedCommand, SandboxChoice, run_jailed_as_tool, run_jailed_on_device};

fn main() -> ExitCode {
    run_all([
        (
            "a_program_on_a_device_is_profiled_by_every_tool_that_is_there",
            a_program_on_a_device_is_profiled_by_every_tool_that_is_there,
        ),
        ("without_nsys_a_program_traces_itself", without_nsys_a_program_traces_itself),
        ("a_sound_program_is_clean_and_an_unsound_one_is_not", a_sound_program_is_clean_and_an_unsound_one_is_not),
        ("the_paths_of_the_tools_are_told", the_paths_of_the_tools_are_told),
    ])
}

/// A kernel that keeps the device busy for a while, one that waits for shared memory, and copies.
const BUSY: &str = r"
__global__ void multiply(const float *x, float *y, int64_t n, int rounds) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int r = 0; r < rounds; r++) v = v * 1.0001f + 0.5f;
    if (v == -1.f) y[i] = v;
}
";

const RACE: &str = r"
__global__ void race(const float *x, float *y, int64_t n) {
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x % n];
    if (blockIdx.x == 0 && threadIdx.x < n) y[threadIdx.x] = s[255 - threadIdx.x];
}
";

/// A place with the tools of this machine.
struct Place<'a> {
    gpu: &'a Gpu,
    shop: Workshop,
    folder: tempfile::TempDir,
    tools: Profilers,
}

impl<'a> Place<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        let split = |name: &str| -> Vec<PathBuf> {
            std::env::split_paths(&std::env::var_os(name).unwrap_or_default()).collect()
        };
        let folder = tempfile::tempdir().unwrap();
        let run = |command: &JailedCommand| {
            run_jailed_as_tool(&host(SandboxChoice::Best).jail, command, &CancelFlag::default())
        };
        let tools = Profilers::find(&split("PATH"), &split("LD_LIBRARY_PATH"), folder.path(), &run);
        Self { gpu, shop: Workshop::new(gpu), folder, tools }
    }

    fn replayed<T>(&self, name: &str, source: &str, work: impl FnOnce(&Replay<'_>) -> T) -> T {
        let library = self.shop.library(name, source, &["-lineinfo"]);
        let spec = task(512, 1024);
        let shapes = spec.default_shapes().unwrap();
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let host = host(SandboxChoice::Best);
        let request = ReplayRequest { spec: &spec, program: &library, python: None, libraries: &[], shapes: &shapes };
        request.write(folder.path(), &mut SecretSeeds::fixed(1)).unwrap();
        let mut readable = request.readable();
        readable.push(folder.path().to_path_buf());
        let access = &self.gpu.access;
        let run = |command: &JailedCommand| run_jailed_on_device(&host.jail, command, access, &CancelFlag::default());
        let kept = |bytes: &[u8]| -> Result<ArtifactHash, StepFailure> { Ok(ArtifactHash::of(bytes)) };
        work(&Replay {
            run: &run,
            executable: &host.jail.executable,
            plan: &request.plan_path(folder.path()),
            in_python: false,
            readable: &readable,
            library_path: &access.library_folders,
            env: &access.environment(),
            scratch: self.folder.path(),
            put: &kept,
        })
    }

    fn profile(&self, name: &str, source: &str) -> Profile {
        let compiler = CompilerReport::default();
        let gpu = Some(&self.gpu.facts);
        let subject =
            ProfiledProgram { compiler: &compiler, cuda: None, gpu, flops: None, bytes: None, median_ns: None };
        self.replayed(name, source, |replay| profile(&self.tools, replay, &subject)).unwrap()
    }

    fn sanitize(&self, name: &str, source: &str) -> SanitizeReport {
        self.replayed(name, source, |replay| {
            sanitize(&self.tools, replay, &Checks { thorough: true, without: &[], shared_memory_call_ns: None })
        })
        .unwrap()
    }
}

fn without<T>(test: &str, tool: &Result<T, MissingTool>) -> bool {
    if let Err(missing) = tool {
        println!("skipped `{test}`: {}", missing.reason);
    }
    tool.is_err()
}

fn a_program_on_a_device_is_profiled_by_every_tool_that_is_there() {
    let test = "a_program_on_a_device_is_profiled_by_every_tool_that_is_there";
    let Some(gpu) = gpu(test) else { return };
    let place = Place::new(gpu);
    let body = "multiply<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, 4096); HONEST;";
    let profile = place.profile("busy", &program(BUSY, body));
    println!("{}", serde_json::to_string_pretty(&profile).unwrap());
    if !without(test, &place.tools.nsys) {
        let timeline = profile.timeline.as_ref().unwrap();
        assert_eq!(timeline.calls, 5, "{:#?}", profile.tiers);
        assert_eq!(timeline.kernels.iter().map(|kernel| kernel.times.count).collect::<Vec<_>>(), [5, 5]);
        assert!(timeline.kernels[0].name.starts_with("multiply"));
        assert!(timeline.launches.host.count == 10 && timeline.launches.until_start.count == 10);
    }
    if !without(test, &place.tools.ncu) {
        // Whether counters may be read is the operator's decision; then the tier says how to permit it.
        let tier = profile.tiers.iter().find(|tier| tier.tool == "ncu").unwrap();
        assert!(tier.used || tier.code.as_deref() == Some("profile.counters_not_permitted"), "{tier:?}");
        if tier.used {
            assert!(profile.kernels[0].name.starts_with("multiply"));
            assert!(profile.kernels[0].bound.bound.is_some());
        }
    }
}

fn without_nsys_a_program_traces_itself() {
    let test = "without_nsys_a_program_traces_itself";
    let Some(gpu) = gpu(test) else { return };
    let mut place = Place::new(gpu);
    if without(test, &place.tools.cupti) {
        return;
    }
    let (reason, remedy) = ("it was taken away".to_owned(), "give it back".to_owned());
    place.tools.nsys = Err(MissingTool { reason, remedy, did_not_answer: false });
    let body = "multiply<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, 4096); HONEST;";
    let profile = place.profile("busy", &program(BUSY, body));
    println!("{}", serde_json::to_string_pretty(&profile.tiers).unwrap());
    let tier = |name: &str| profile.tiers.iter().find(|tier| tier.tool == name).unwrap();
    assert!(!tier("nsys").used && tier("cupti").used, "{:#?}", profile.tiers);
    let kernels = &profile.timeline.as_ref().unwrap().kernels;
    assert!(
        kernels[0].name.starts_with("multiply") && kernels[0].times.count == kernels[1].times.count,
        "{kernels:#?}"
    );
}

fn a_sound_program_is_clean_and_an_unsound_one_is_not() {
    let test = "a_sound_program_is_clean_and_an_unsound_one_is_not";
    let Some(gpu) = gpu(test) else { return };
    let place = Place::new(gpu);
    if without(test, &place.tools.compute_sanitizer) {
        return;
    }
    let sound = place.sanitize("sound", &program("", "HONEST;"));
    assert_eq!(sound.answer(), Answer::Pass, "{}", serde_json::to_string_pretty(&sound).unwrap());
    let body = "honest<<<(n + 255) / 256, 256, 0, stream>>>(x, w, b, y + n, 100000, columns); HONEST;";
    let beyond = place.sanitize("beyond", &program("", body));
    println!("{}", serde_json::to_string_pretty(&beyond).unwrap());
    assert_eq!(beyond.tools[0].outcome, SanitizerOutcome::Errors);
    assert_eq!(beyond.tools[0].issues[0].file.as_deref(), Some("beyond.cu"));
    let racy = place.sanitize("racy", &program(RACE, "race<<<4, 256, 0, stream>>>(x, y, n);"));
    println!("{}", serde_json::to_string_pretty(&racy).unwrap());
    assert_eq!(racy.tools[1].outcome, SanitizerOutcome::Errors);
    let unwritten = "float *t; cudaMalloc(&t, n * 4); HONEST; honest<<<1, 256, 0, stream>>>(t, w, b, y, 256, columns); \
                     cudaFreeAsync(t, stream);";
    let unread = place.sanitize("unwritten", &program("", unwritten));
    println!("{}", serde_json::to_string_pretty(&unread).unwrap());
    assert_eq!(unread.tools[2].outcome, SanitizerOutcome::Errors);
}

fn the_paths_of_the_tools_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let run =
        |command: &JailedCommand| run_jailed_as_tool(&host(SandboxChoice::Best).jail, command, &CancelFlag::default());
    let found = Profilers::find(&[], &[], scratch.path(), &run);
    for tool in [&found.nsys, &found.ncu, &found.compute_sanitizer] {
        match tool {
            Ok(tool) => assert!(tool.path.is_absolute() && tool.path != Path::new("/") && !tool.version.is_empty()),
            Err(missing) => assert!(!missing.reason.is_empty() && !missing.remedy.is_empty()),
        }
    }
}
