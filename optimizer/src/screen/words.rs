//! Names that tell a reader or the judge something about a program, with the reason. None of them refuses a program.

use nightshift_protocol::verdict::Severity::{self, Note, Warning};

/// Names with one meaning.
#[derive(Debug)]
pub(super) struct Word {
    /// Code of the finding.
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    /// Whether the names load or execute bytes: together with encoded bytes these refuse a program.
    pub(super) loads: bool,
    /// Continues a sentence that begins with the name: what it does, and what to do about it.
    what: &'static str,
    /// Names with blanks between them. In C++, `name*` stands for all names that begin so, `name()` for calls only. In
    /// Python, a path stands for all paths below it, too, and `.name` for that attribute of any value.
    names: &'static str,
}

impl Word {
    /// Returns the message of the finding for this name.
    pub(super) fn message(&self, name: &str) -> String {
        format!("`{name}` {}", self.what)
    }
}

const fn word(code: &'static str, severity: Severity, what: &'static str, names: &'static str) -> Word {
    Word { code, severity, loads: false, what, names }
}

const LOADS: &str =
    "loads or compiles code while the program runs: readers expect kernels that are built from this source";
const PROCESSES: &str = "starts a process, which fails in the sandbox: leave it out";
const NETWORK: &str =
    "reaches for the network, which does not exist in the sandbox: put what is needed into the source";
const CLOCK: &str = "reads a clock, or waits by one: results and work must not depend on it";
const PROFILER: &str = "steers a profiler: the evidence about the program may be incomplete";
const HANDS_OVER: &str = "hands operators of PyTorch to a compiler: write the kernels that matter";
const INTROSPECTION: &str = "looks at objects or frames of the caller: a program works on its arguments";
const DYNAMIC: &str = "runs a text as code: readers expect code that stands in the file";
const PRECISION: &str = "rounds to fewer bits, which counts as right as far as the error stays within what is allowed";

const CPP: &[Word] = &[
    Word {
        loads: true,
        ..word(
            "loading",
            Warning,
            LOADS,
            "dlopen dlmopen memfd_create mprotect PROT_EXEC cuModuleLoad* cuLibraryLoad* cudaLibraryLoad* cuLinkAdd* \
             nvrtcCompile* nvJitLink* nvPTXCompiler*",
        )
    },
    word(
        "processes",
        Warning,
        PROCESSES,
        "fork() vfork() execv() execve() execvp() execl() posix_spawn popen() system()",
    ),
    word("network", Warning, NETWORK, "socket() getaddrinfo gethostbyname inet_pton curl_easy_*"),
    word(
        "clocks",
        Warning,
        CLOCK,
        "clock_gettime gettimeofday steady_clock system_clock high_resolution_clock _rdtsc __rdtsc __rdtscp rdtsc rdtscp \
         cudaEventElapsedTime* cuEventElapsedTime*",
    ),
    word("device_clock", Warning, CLOCK, "clock() clock64 __clock64 globaltimer __globaltimer"),
    word("profiler_control", Warning, PROFILER, "cupti* cudaProfiler* cuProfiler*"),
];

const PYTHON: &[Word] = &[
    Word {
        loads: true,
        ..word(
            "loading",
            Warning,
            LOADS,
            "ctypes.CDLL ctypes.PyDLL ctypes.cdll ctypes.pydll cffi marshal.loads cupy.RawModule \
             importlib.machinery.ExtensionFileLoader importlib.util.spec_from_file_location torch.ops.load_library \
             torch.classes.load_library",
        )
    },
    Word { loads: true, ..word("dynamic_code", Warning, DYNAMIC, "exec eval") },
    word(
        "processes",
        Warning,
        PROCESSES,
        "subprocess multiprocessing os.fork os.system os.popen os.execv os.posix_spawn torch.multiprocessing",
    ),
    word(
        "network",
        Warning,
        NETWORK,
        "socket urllib requests httpx http.client ftplib aiohttp torch.hub huggingface_hub",
    ),
    word("hands_over", Warning, HANDS_OVER, "torch.compile torch.jit torch._inductor torch.export"),
    word("clocks", Warning, CLOCK, ".elapsed_time time timeit datetime triton.testing"),
    word(
        "profiler_control",
        Warning,
        PROFILER,
        "torch.profiler.profile torch.cuda.profiler torch.autograd.profiler.profile",
    ),
    word(
        "introspection",
        Warning,
        INTROSPECTION,
        "._getframe .currentframe .f_back .f_locals .f_globals .tb_frame .get_objects .get_referrers .memory_snapshot \
         .__globals__ .__subclasses__ inspect.stack sys._current_frames torch.cuda.memory._snapshot",
    ),
    word(
        "precision",
        Note,
        PRECISION,
        ".half .bfloat16 torch.float16 torch.float8_e4m3fn torch.float8_e5m2 torch.autocast torch.amp torch.cuda.amp",
    ),
];

/// Looks up an identifier of C++ or CUDA.
pub(super) fn of_cpp(name: &str, is_called: bool) -> Option<&'static Word> {
    CPP.iter().find(|word| word.names.split(' ').any(|pattern| is_cpp(pattern, name, is_called)))
}

/// Looks up a name of Python, as the dotted path that it stands for.
pub(super) fn of_python(path: &str) -> Option<&'static Word> {
    let is = |pattern: &str| match pattern.strip_prefix('.') {
        Some(_) => path.ends_with(pattern),
        None => path.strip_prefix(pattern).is_some_and(|below| below.is_empty() || below.starts_with('.')),
    };
    PYTHON.iter().find(|word| word.names.split(' ').any(is))
}

fn is_cpp(pattern: &str, name: &str, is_called: bool) -> bool {
    if let Some(prefix) = pattern.strip_suffix('*') {
        return name.starts_with(prefix);
    }
    match pattern.strip_suffix("()") {
        Some(function) => is_called && name == function,
        None => name == pattern,
    }
}
