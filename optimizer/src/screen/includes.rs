//! What a candidate may include.

use std::collections::BTreeSet;

use nightshift_protocol::task::{CudaLibrary, Target};
use nightshift_protocol::verdict::{Finding, Severity};

use super::{finding, names_cuda};

/// Headers of numerical programs.
const ALLOWED: &[&str] = &[
    "nightshift.h",
    "algorithm",
    "array",
    "assert.h",
    "atomic",
    "bit",
    "bitset",
    "cassert",
    "cerrno",
    "cfenv",
    "cfloat",
    "cinttypes",
    "climits",
    "cmath",
    "compare",
    "complex",
    "complex.h",
    "concepts",
    "cstddef",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "cctype",
    "cstdarg",
    "deque",
    "errno.h",
    "exception",
    "execution",
    "experimental/simd",
    "fenv.h",
    "float.h",
    "functional",
    "initializer_list",
    "inttypes.h",
    "iterator",
    "limits",
    "limits.h",
    "list",
    "map",
    "math.h",
    "memory",
    "memory_resource",
    "new",
    "numbers",
    "numeric",
    "optional",
    "queue",
    "random",
    "ranges",
    "ratio",
    "set",
    "span",
    "stack",
    "stdalign.h",
    "stdarg.h",
    "stdbool.h",
    "stddef.h",
    "stdexcept",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string",
    "string.h",
    "string_view",
    "tuple",
    "type_traits",
    "typeinfo",
    "unordered_map",
    "unordered_set",
    "utility",
    "valarray",
    "variant",
    "vector",
    "version",
    "cpuid.h",
    "malloc.h",
    "alloca.h",
];

/// Vector intrinsics.
const ALLOWED_INTRINSICS: &[&str] = &[
    "immintrin.h",
    "x86intrin.h",
    "xmmintrin.h",
    "emmintrin.h",
    "pmmintrin.h",
    "tmmintrin.h",
    "smmintrin.h",
    "nmmintrin.h",
    "avxintrin.h",
    "avx2intrin.h",
    "fmaintrin.h",
    "mm_malloc.h",
    "arm_neon.h",
    "arm_sve.h",
    "arm_fp16.h",
    "arm_bf16.h",
];

/// Headers of CUDA programs, by name or first folder.
const ALLOWED_CUDA: &[&str] = &[
    "cuda.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "cuda_fp8.h",
    "mma.h",
    "cooperative_groups.h",
    "cuda_pipeline.h",
    "cuda_pipeline_primitives.h",
    "math_constants.h",
    "vector_types.h",
    "device_launch_parameters.h",
    "cuda_device_runtime_api.h",
    "cudaTypedefs.h",
    "cuComplex.h",
    "cuda_fp4.h",
    "cuda_fp6.h",
    "cuda_awbarrier.h",
    "cuda_awbarrier_primitives.h",
    "sm_61_intrinsics.h",
    "device_functions.h",
    "builtin_types.h",
    "curand_kernel.h",
];
/// The language's own library for devices: barriers, pipelines, atomics.
const ALLOWED_CUDA_FOLDERS: &[&str] = &["cuda", "nv", "cooperative_groups", "crt"];

/// Headers that start threads: on a GPU a program may have threads of the host.
const THREADS: &[&str] = &[
    "thread",
    "future",
    "pthread.h",
    "threads.h",
    "omp.h",
    "semaphore",
    "semaphore.h",
    "sched.h",
    "stop_token",
    "mutex",
    "shared_mutex",
    "condition_variable",
    "barrier",
    "latch",
];

/// Headers of the toolkit that steer what a program may not steer, and of libraries that no task can allow.
const FORBIDDEN_CUDA: &[&str] = &[
    "cudaProfiler.h",
    "cuda_profiler_api.h",
    "nvml.h",
    "nvrtc.h",
    "nvJitLink.h",
    "nvPTXCompiler.h",
    "fatbinary.h",
    "cupti.h",
    "nvperf_host.h",
    "nvToolsExt.h",
    "cufft.h",
    "cufftXt.h",
    "cusparse.h",
    "cusparseLt.h",
    "cusolverDn.h",
    "cusolverSp.h",
    "cusolverMg.h",
    "curand.h",
    "nccl.h",
    "npp.h",
    "nvjpeg.h",
    "cutensor.h",
    "cublasXt.h",
    "cufile.h",
];
const FORBIDDEN_CUDA_FOLDERS: &[&str] = &["nvtx3", "torch", "ATen", "c10", "npp"];

/// The library that a header belongs to.
fn library_of(path: &str) -> Option<CudaLibrary> {
    let first = path.split('/').next().unwrap_or(path);
    match first {
        "cublas.h" | "cublas_v2.h" | "cublas_api.h" => Some(CudaLibrary::Cublas),
        "cublasLt.h" => Some(CudaLibrary::CublasLt),
        "cub" | "thrust" => Some(CudaLibrary::Cccl),
        "cutlass" | "cute" => Some(CudaLibrary::Cutlass),
        name if name.starts_with("cudnn") => Some(CudaLibrary::Cudnn),
        _ => None,
    }
}

/// Headers whose content has no honest use here.
const FORBIDDEN: &[&str] = &[
    "thread",
    "future",
    "pthread.h",
    "threads.h",
    "omp.h",
    "semaphore.h",
    "sched.h",
    "stop_token",
    "fstream",
    "filesystem",
    "fcntl.h",
    "dirent.h",
    "spawn.h",
    "dlfcn.h",
    "link.h",
    "elf.h",
    "signal.h",
    "csignal",
    "ucontext.h",
    "setjmp.h",
    "csetjmp",
    "chrono",
    "ctime",
    "time.h",
    "utime.h",
    "poll.h",
    "netdb.h",
    "ifaddrs.h",
    "execinfo.h",
    "mqueue.h",
    "aio.h",
    "liburing.h",
    "wait.h",
    "syscall.h",
    "cxxabi.h",
    "unwind.h",
    "ftw.h",
    "glob.h",
    "wordexp.h",
    "pwd.h",
    "pty.h",
    "termios.h",
    "syslog.h",
    "experimental/filesystem",
];
const FORBIDDEN_FOLDERS: &[&str] =
    &["sys", "linux", "asm", "asm-generic", "net", "netinet", "arpa", "scsi", "rpc", "bits", "x86_64-linux-gnu"];

/// Of the forbidden folders: memory mapping has an honest use, huge pages for scratch memory.
const TOLERATED: &[&str] = &["sys/mman.h", "sys/types.h", "sys/cdefs.h"];

/// What an `#include` of this name means; `name` still has its quotes or brackets.
pub(super) fn judge(name: &str, line: u32, target: Target, allowed: &BTreeSet<CudaLibrary>) -> Option<Finding> {
    let quoted = name.trim();
    let inner = quoted.strip_prefix(['"', '<']).and_then(|rest| rest.strip_suffix(['"', '>']));
    let Some(path) = inner else {
        return Some(finding(
            "forbidden_include",
            Severity::Violation,
            format!("the included name `{quoted}` is computed by a macro: name headers directly"),
            line,
        ));
    };
    let path = path.trim();
    if path.starts_with(['/', '\\', '~']) || path.split('/').any(|part| part == "..") || path.contains(':') {
        return Some(finding(
            "outside_include",
            Severity::Violation,
            format!("`{path}` is a file outside the program: only headers of compiler and contract may be included"),
            line,
        ));
    }
    let first_folder = path.split_once('/').map(|(folder, _)| folder);
    let in_folder = |folders: &[&str]| first_folder.is_some_and(|folder| folders.contains(&folder));
    let cuda = target == Target::Cuda
        && (ALLOWED_CUDA.contains(&path) || in_folder(ALLOWED_CUDA_FOLDERS) || THREADS.contains(&path));
    if ALLOWED.contains(&path) || ALLOWED_INTRINSICS.contains(&path) || cuda {
        return None;
    }
    if target == Target::Cuda {
        match library_of(path) {
            Some(library) if allowed.contains(&library) => return None,
            // Its declarations come with those of cuBLASLt.
            Some(CudaLibrary::Cublas) if path == "cublas_api.h" && allowed.contains(&CudaLibrary::CublasLt) => {
                return None;
            }
            Some(library) => return Some(names_cuda::not_allowed(path, library, allowed, line)),
            None => {}
        }
        if FORBIDDEN_CUDA.contains(&path) || in_folder(FORBIDDEN_CUDA_FOLDERS) {
            let message = format!("`{path}` is of a library or a tool that a program may not use");
            return Some(finding("forbidden_include", Severity::Violation, message, line));
        }
    }
    let forbidden = (FORBIDDEN.contains(&path) || in_folder(FORBIDDEN_FOLDERS)) && !TOLERATED.contains(&path);
    Some(if forbidden {
        finding(
            "forbidden_include",
            Severity::Violation,
            format!(
                "`{path}` declares what a program may not use: threads, processes, files, network, clocks or signals"
            ),
            line,
        )
    } else {
        finding("unusual_include", Severity::Warning, format!("`{path}` is no header of numerical programs"), line)
    })
}
