//! CUDA programs built with the real nvcc, in the real jail. They need no GPU. Without nvcc they are reported as
//! skipped; `cargo xtask test --install` brings one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/nvcc.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use nightshift_evaluator::device::KERNELS_SOURCE;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild, OccupancyLimiter};
use nightshift_protocol::needs::ComputeCapability;
use nightshift_protocol::task::CudaLibrary;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use nightshift_toolchain::build::{Role, compile_module};
use nightshift_toolchain::nvcc::Nvcc;
use support::Bench;

/// Two kernels: one bounded, with vectors, shared memory, an atomic; one on tensor cores.
const PROGRAM: &str = include_str!("fixtures/nvcc/program.cu");

fn build(bench: &Bench, source: &str) -> BuildReport {
    bench.try_build(source, Role::Candidate, &[]).unwrap()
}

fn kernel<'a>(build: &'a CudaBuild, name: &str) -> &'a KernelBuild {
    build.kernels.iter().find(|kernel| kernel.name.contains(name)).unwrap()
}

fn errors(report: &BuildReport) -> Vec<(&str, u32, u32, &str)> {
    let errors = report.messages.iter().filter(|message| message.severity == "error");
    errors.map(|error| (error.file.as_str(), error.line, error.column, error.message.as_str())).collect()
}

fn the_number_of(needle: &str) -> u32 {
    let line = PROGRAM.lines().position(|line| line.contains(needle)).unwrap();
    u32::try_from(line + 1).unwrap()
}

fn a_program_becomes_a_library_with_its_kernels_described(nvcc: &Arc<Nvcc>) {
    let report = build(&Bench::new(nvcc), PROGRAM);
    assert_eq!(report.end, ProcessEnd::Finished, "{:?}", report.messages);
    assert!(report.library.is_some() && !report.cached);
    let cuda = report.cuda.unwrap();
    assert_eq!((cuda.arch.as_str(), cuda.libraries.len(), cuda.kernels.len()), ("sm_90a", 0, 2), "{cuda:?}");

    let scale = kernel(&cuda, "scale");
    assert_eq!(scale.name, "(anonymous namespace)::scale(float const*, float*, int)");
    assert!(scale.symbol.starts_with("_ZN") && scale.registers > 4 && scale.registers < 64, "{scale:?}");
    assert_eq!((scale.barriers, scale.shared_bytes, scale.spills()), (1, 1024, false));
    assert_eq!(scale.max_block_threads, Some(256));
    let occupancy = scale.occupancy.unwrap().of_block.unwrap();
    assert_eq!((occupancy.block_threads, occupancy.blocks, occupancy.limited_by), (256, 8, OccupancyLimiter::Warps));

    let multiply = kernel(&cuda, "multiply<float>");
    assert_eq!(multiply.max_block_threads, None);
    assert!(multiply.occupancy.unwrap().warps_by_registers > 0);

    assert_eq!(cuda.uncounted, None, "a disassembler is installed with the compiler");
    let (scale, multiply) = (scale.sass.unwrap(), multiply.sass.unwrap());
    assert!(scale.loads_128 >= 1 && scale.stores_128 >= 1 && scale.atomics >= 1, "{scale:?}");
    assert!(scale.barriers >= 1 && scale.shared_loads >= 1 && scale.special_function >= 1, "{scale:?}");
    assert_eq!((scale.tensor_core, scale.local_loads), (0, 0));
    assert!(multiply.tensor_core >= 1 && multiply.atomics == 0, "{multiply:?}");
    assert_eq!(report.report.instructions, scale.instructions + multiply.instructions);
}

fn spills_are_counted_and_told(nvcc: &Arc<Nvcc>) {
    let report = build(&Bench::new(nvcc), include_str!("fixtures/nvcc/spills.cu"));
    let cuda = report.cuda.unwrap();
    let kernel = kernel(&cuda, "spills");
    assert!(kernel.spills() && kernel.stack_bytes > 0 && kernel.registers == 64, "{kernel:?}");
    let sass = kernel.sass.unwrap();
    assert!(sass.local_loads > 0 && sass.local_stores > 0, "{sass:?}");
    let warning = report.messages.iter().find(|message| message.message.contains("spilled to local memory"));
    assert_eq!(warning.map(|message| message.severity.as_str()), Some("warning"), "{:?}", report.messages);
}

fn the_same_source_gives_the_same_library_in_any_folder(nvcc: &Arc<Nvcc>) {
    let (one, other) = (Bench::new(nvcc), Bench::new(nvcc));
    assert_ne!(one.folder.path(), other.folder.path());
    assert_eq!(build(&one, PROGRAM).library, build(&other, PROGRAM).library);
}

fn every_way_of_isolation_gives_the_same_library(nvcc: &Arc<Nvcc>) {
    let library = |means| build(&Bench::jailed(nvcc, means), PROGRAM).library;
    let best = library(SandboxChoice::Best);
    assert!(best.is_some());
    assert_eq!(library(SandboxChoice::Landlock), best);
    assert_eq!(library(SandboxChoice::Namespaces), best);
}

fn a_program_is_compiled_once_and_then_answered_from_the_cache(nvcc: &Arc<Nvcc>) {
    let bench = Bench::new(nvcc);
    let (first, second) = (build(&bench, PROGRAM), build(&bench, PROGRAM));
    assert!(!first.cached && second.cached);
    assert_eq!((&second.library, &second.cuda), (&first.library, &first.cuda));
    // What a task allows decides about what is refused: it belongs to the address.
    let allowed = bench.try_build(PROGRAM, Role::Candidate, &[CudaLibrary::Cublas]).unwrap();
    assert!(!allowed.cached);
    assert_ne!(allowed.build_key, first.build_key);
}

fn the_truth_computes_in_double_precision(nvcc: &Arc<Nvcc>) {
    const REFERENCE: &str = "#include \"nightshift.h\"\n__global__ void triple(ns_real *x) { x[threadIdx.x] *= 3; }\n\
        NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {\n\
        triple<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<ns_real *>(outputs[0].data));\n\
        return static_cast<int>(cudaGetLastError());\n}\n";
    let bench = Bench::new(nvcc);
    let name = |role| {
        let report = bench.try_build(REFERENCE, role, &[]).unwrap();
        report.cuda.unwrap().kernels.into_iter().map(|kernel| kernel.name).collect::<Vec<_>>()
    };
    assert_eq!(name(Role::Reference), ["triple(float*)"]);
    assert_eq!(name(Role::Truth), ["triple(double*)"]);
}

fn an_error_of_the_front_end_has_line_and_column(nvcc: &Arc<Nvcc>) {
    let report = build(&Bench::new(nvcc), &PROGRAM.replace("float4 v =", "flaot4 v ="));
    assert_eq!(report.library, None);
    let line = the_number_of("float4 v =");
    let column = PROGRAM.lines().find_map(|line| line.find("float4 v =")).unwrap();
    assert_eq!(
        errors(&report).first(),
        Some(&("candidate.cu", line, u32::try_from(column + 1).unwrap(), "identifier \"flaot4\" is undefined"))
    );
}

fn an_error_in_assembly_is_led_back_to_its_line(nvcc: &Arc<Nvcc>) {
    let report =
        build(&Bench::new(nvcc), &PROGRAM.replace("__syncthreads();", "asm volatile(\"bogus.op;\"); __syncthreads();"));
    assert_eq!(report.library, None);
    let line = the_number_of("__syncthreads();");
    assert!(
        errors(&report)
            .iter()
            .any(|(file, at, _, said)| (*file, *at) == ("candidate.cu", line) && said.contains("bogus")),
        "{:?}",
        report.messages
    );
}

fn too_much_shared_memory_is_an_error_with_numbers(nvcc: &Arc<Nvcc>) {
    let report = build(&Bench::new(nvcc), &PROGRAM.replace("tile[256]", "tile[256000]"));
    assert_eq!(report.library, None);
    assert!(errors(&report).iter().any(|error| error.3.contains("too much shared data")), "{:?}", report.messages);
}

fn what_nothing_defines_is_an_error_that_names_it(nvcc: &Arc<Nvcc>) {
    let source = PROGRAM
        .replace("NS_EXPORT", "int elsewhere(int);\nNS_EXPORT")
        .replace("return static", "return elsewhere(1) + static");
    let report = build(&Bench::new(nvcc), &source);
    assert_eq!((report.library.as_ref(), report.cuda.as_ref()), (None, None));
    assert!(errors(&report).iter().any(|error| error.3.contains("elsewhere(int)")), "{:?}", report.messages);
}

fn a_library_is_named_when_the_task_allows_it_and_refused_when_not(nvcc: &Arc<Nvcc>) {
    // Declared by hand: whether the headers are installed makes no difference.
    let source = PROGRAM
        .replace("NS_EXPORT", "extern \"C\" int cublasLtCreate(void **);\nNS_EXPORT")
        .replace("return static", "void *handle; return cublasLtCreate(&handle) + static");
    let bench = Bench::new(nvcc);
    let allowed = bench.try_build(&source, Role::Candidate, &[CudaLibrary::CublasLt]).unwrap();
    let major = nvcc.release().0;
    assert_eq!(allowed.cuda.unwrap().libraries, [format!("libcublasLt.so.{major}")]);
    let refused = build(&bench, &source);
    assert_eq!(refused.library, None);
    let said = errors(&refused).first().unwrap().3.to_owned();
    assert!(said.contains("cublasLtCreate") && said.contains("cuBLASLt") && said.contains("not allow"), "{said}");
}

fn a_missing_header_of_an_allowed_library_is_the_machines_failure(nvcc: &Arc<Nvcc>) {
    const HEADERS: [(CudaLibrary, &str); 3] = [
        (CudaLibrary::Cudnn, "cudnn.h"),
        (CudaLibrary::CublasLt, "cublasLt.h"),
        (CudaLibrary::Cutlass, "cutlass/cutlass.h"),
    ];
    let bench = Bench::new(nvcc);
    for (library, header) in HEADERS.into_iter().filter(|(library, _)| !nvcc.has(*library)) {
        let source = format!("#include <{header}>\n{PROGRAM}");
        let failure = bench.try_build(&source, Role::Candidate, &[library]).unwrap_err();
        assert_eq!(failure.code, "toolchain.library_missing", "{failure:?}");
        // Without the permission it is the program that is wrong.
        assert!(errors(&build(&bench, &source)).iter().any(|error| error.3.contains(header)));
    }
}

fn a_program_without_its_entry_point_counts_as_not_compiled(nvcc: &Arc<Nvcc>) {
    let report = build(&Bench::new(nvcc), &PROGRAM.replace("NS_EXPORT int ns_run", "extern \"C\" int run"));
    assert_eq!(report.library, None);
    assert!(errors(&report).first().unwrap().3.contains("missing ns_run"), "{:?}", report.messages);
}

fn the_log_names_no_folder_of_the_machine(nvcc: &Arc<Nvcc>) {
    let bench = Bench::new(nvcc);
    let report = build(&bench, &PROGRAM.replace("float4 v =", "flaot4 v ="));
    let log = std::fs::read(bench.folder.path().join("builds").join(&report.build_key).join("log.txt")).unwrap();
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("candidate.cu(") && !log.contains("/build-"), "{log}");
}

fn the_kernels_of_the_evaluator_are_built_for_each_device(nvcc: &Arc<Nvcc>) {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().canonicalize().unwrap();
    let built = |source: &str, major, minor| {
        let (capability, jail) = (ComputeCapability { major, minor }, support::jail(SandboxChoice::Best));
        compile_module(nvcc, source, capability, &jail, &folder, &CancelFlag::default())
    };
    for (major, minor) in [(8, 0), (9, 0)] {
        let image = built(KERNELS_SOURCE, major, minor).unwrap();
        assert!(image.starts_with(b"\x7fELF"), "sm_{major}{minor}");
        for kernel in ["ns_draw", "ns_compare", "ns_check_guard"] {
            assert!(image.windows(kernel.len()).any(|part| part == kernel.as_bytes()), "sm_{major}{minor}: {kernel}");
        }
    }
    let refused = built("__global__ void broken() { nothing(); }", 9, 0).unwrap_err();
    assert_eq!(refused.code, "toolchain.kernels_not_built");
    assert!(refused.message.contains("nothing"), "{refused}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
}

type Test = fn(&Arc<Nvcc>);

macro_rules! tests {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), $name as Test)),*] };
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = tests![
        a_program_becomes_a_library_with_its_kernels_described,
        spills_are_counted_and_told,
        the_same_source_gives_the_same_library_in_any_folder,
        every_way_of_isolation_gives_the_same_library,
        a_program_is_compiled_once_and_then_answered_from_the_cache,
        the_truth_computes_in_double_precision,
        an_error_of_the_front_end_has_line_and_column,
        an_error_in_assembly_is_led_back_to_its_line,
        too_much_shared_memory_is_an_error_with_numbers,
        what_nothing_defines_is_an_error_that_names_it,
        a_library_is_named_when_the_task_allows_it_and_refused_when_not,
        a_missing_header_of_an_allowed_library_is_the_machines_failure,
        a_program_without_its_entry_point_counts_as_not_compiled,
        the_log_names_no_folder_of_the_machine,
        the_kernels_of_the_evaluator_are_built_for_each_device,
    ];
    let scratch = tempfile::tempdir().unwrap();
    let found = support::find(&scratch.path().canonicalize().unwrap(), SandboxChoice::Best);
    if let Err(error) = &found {
        eprintln!("skipped: tests that compile CUDA: {error}");
    }
    let is_installed = support::install_folder().exists();
    let found = found.map(Arc::new).map_err(|error| error.to_string());
    let trials = tests.map(|(name, test)| {
        let found = found.clone();
        Trial::test(name, move || {
            test(&found.map_err(Failed::from)?);
            Ok(())
        })
    });
    // One that was installed has to work.
    let is_missing = found.is_err() && !is_installed;
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(is_missing)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
