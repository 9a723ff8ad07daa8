//! What a candidate may include.

use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity};

use super::finding;

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
];
const ALLOWED_CUDA_FOLDERS: &[&str] = &["cuda", "cub", "cute", "cutlass", "thrust", "nv", "cooperative_groups", "crt"];

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
pub(super) fn judge(name: &str, line: u32, target: Target) -> Option<Finding> {
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
    let cuda = target == Target::Cuda && (ALLOWED_CUDA.contains(&path) || in_folder(ALLOWED_CUDA_FOLDERS));
    if ALLOWED.contains(&path) || ALLOWED_INTRINSICS.contains(&path) || cuda {
        return None;
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
