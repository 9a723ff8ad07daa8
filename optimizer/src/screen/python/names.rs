//! What no honest program in Python has a use for, by name.

use nightshift_protocol::verdict::Severity::{self, Note, Violation, Warning};

/// Names with one reason: code, severity, why as the end of a sentence that begins with the name, names.
type Rule = (&'static str, Severity, &'static str, &'static [&'static str]);

/// Modules that programs are made of.
const ALLOWED_MODULES: [&str; 17] = [
    "torch",
    "triton",
    "math",
    "cmath",
    "typing",
    "typing_extensions",
    "dataclasses",
    "functools",
    "itertools",
    "enum",
    "collections",
    "contextlib",
    "operator",
    "numbers",
    "abc",
    "__future__",
    "numpy",
];

const MODULES: &[Rule] = &[
    ("threads", Violation, "starts threads", &["threading", "_thread", "concurrent", "asyncio", "queue", "sched"]),
    (
        "processes",
        Violation,
        "starts processes, or speaks to them",
        &["subprocess", "multiprocessing", "pty", "signal", "posix", "resource"],
    ),
    ("environment", Violation, "reaches for the environment of the process", &["os", "platform", "site", "sysconfig"]),
    (
        "files",
        Violation,
        "reaches for files: a program sees its tensors only",
        &[
            "io",
            "pathlib",
            "tempfile",
            "glob",
            "shutil",
            "fileinput",
            "mmap",
            "pickle",
            "shelve",
            "sqlite3",
            "dbm",
            "zipfile",
            "tarfile",
            "safetensors",
            "h5py",
            "joblib",
        ],
    ),
    (
        "network",
        Violation,
        "reaches for the network",
        &["socket", "ssl", "urllib", "http", "ftplib", "requests", "aiohttp"],
    ),
    (
        "loading",
        Violation,
        "loads code that is not in this file",
        &[
            "ctypes",
            "cffi",
            "importlib",
            "pkgutil",
            "runpy",
            "imp",
            "zipimport",
            "marshal",
            "code",
            "codeop",
            "cupy",
            "numba",
            "pycuda",
            "cuda",
        ],
    ),
    (
        "hidden_source",
        Violation,
        "unpacks what nobody can read",
        &["base64", "binascii", "zlib", "lzma", "bz2", "gzip"],
    ),
    (
        "introspection",
        Violation,
        "looks at the objects, frames or modules of its caller",
        &[
            "gc",
            "inspect",
            "sys",
            "traceback",
            "tracemalloc",
            "builtins",
            "atexit",
            "weakref",
            "ast",
            "dis",
            "__main__",
            // What the file itself is called where it runs.
            "program",
        ],
    ),
    ("patches", Violation, "puts something else in the place of what others use", &["unittest", "mock", "wrapt"]),
    ("clocks", Violation, "looks at clocks", &["time", "timeit", "datetime", "cProfile", "profile"]),
];

/// Dotted paths, each with what is below it.
const PATHS: &[Rule] = &[
    (
        "dynamic_code",
        Violation,
        "runs the texts of annotations",
        &["typing.get_type_hints", "typing.ForwardRef", "functools.singledispatch", "functools.singledispatchmethod"],
    ),
    (
        "hands_over",
        Violation,
        "hands the reference's operators to a compiler instead of writing kernels",
        &["torch.compile", "torch.jit", "torch._dynamo", "torch._inductor", "torch.export"],
    ),
    (
        "files",
        Violation,
        "reaches for files: a program sees its tensors only",
        &[
            "torch.load",
            "torch.save",
            "torch.hub",
            "torch.package",
            "torch.from_file",
            "torch.ops.load_library",
            "torch.classes.load_library",
            "torch.utils.cpp_extension.load",
            "numpy.load",
            "numpy.save",
            "numpy.savez",
            "numpy.memmap",
            "numpy.fromfile",
            "numpy.loadtxt",
            "numpy.ctypeslib",
        ],
    ),
    ("processes", Violation, "starts processes, or speaks to them", &["torch.multiprocessing", "torch.distributed"]),
    (
        "intercepts",
        Violation,
        "stands between PyTorch and its callers",
        &["torch.utils._python_dispatch", "torch.overrides", "torch.autograd.graph", "torch.library"],
    ),
    (
        "introspection",
        Violation,
        "looks at memory that is not its own",
        &[
            "torch.cuda.memory",
            "torch.cuda.memory_snapshot",
            "torch.cuda.caching_allocator_alloc",
            "torch.cuda.CUDAPluggableAllocator",
            "torch.UntypedStorage",
            "torch.storage",
        ],
    ),
    (
        "global_state",
        Violation,
        "changes PyTorch for everybody in the process",
        &[
            "torch.set_default_dtype",
            "torch.set_default_device",
            "torch.set_default_tensor_type",
            "torch.set_float32_matmul_precision",
            "torch.set_num_threads",
            "torch.set_num_interop_threads",
            "torch.set_deterministic_debug_mode",
            "torch.use_deterministic_algorithms",
            "torch.set_flush_denormal",
            "torch.cuda.set_device",
            "torch.cuda.set_per_process_memory_fraction",
            "torch.backends.cudnn.flags",
        ],
    ),
    (
        "seeds",
        Warning,
        "draws again what the caller drew",
        &[
            "torch.manual_seed",
            "torch.cuda.manual_seed",
            "torch.cuda.manual_seed_all",
            "torch.random",
            "torch.set_rng_state",
            "torch.cuda.set_rng_state",
        ],
    ),
    (
        "own_stream",
        Warning,
        "works on another stream than the one that is timed: the current one has to wait for it",
        &["torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.set_stream", "torch.cuda.ExternalStream"],
    ),
    (
        "clocks",
        Warning,
        "measures time inside of the program",
        &["torch.cuda.Event", "triton.testing", "torch.profiler"],
    ),
    ("fallback", Warning, "asks whether there is a GPU: the program runs where one is", &["torch.cuda.is_available"]),
    (
        "precision",
        Note,
        "rounds to fewer bits",
        &[
            "torch.half",
            "torch.float16",
            "torch.bfloat16",
            "torch.float8_e4m3fn",
            "torch.float8_e5m2",
            "torch.autocast",
            "torch.amp",
            "torch.cuda.amp",
        ],
    ),
];

/// Modules that others import, by whose names they are reached then.
const REACHED: [&str; 8] = ["os", "sys", "builtins", "importlib", "inspect", "ctypes", "subprocess", "gc"];

/// Functions that everybody has.
const BUILT_IN: &[Rule] = &[
    ("dynamic_code", Violation, "makes code from text", &["exec", "eval", "compile", "__import__"]),
    (
        "introspection",
        Violation,
        "looks at names that are not its own",
        &["globals", "locals", "vars", "breakpoint", "__builtins__", "__loader__", "__spec__"],
    ),
    ("files", Violation, "reaches for files or a terminal: a program sees its tensors only", &["open", "input"]),
    ("prints", Note, "prints", &["print"]),
];

/// Attributes, whatever they belong to.
const ATTRIBUTES: &[Rule] = &[
    (
        "introspection",
        Violation,
        "looks behind functions and classes",
        &[
            "__globals__",
            "__subclasses__",
            "__builtins__",
            "__code__",
            "__closure__",
            "__bases__",
            "__mro__",
            "_getframe",
            "f_back",
            "f_locals",
            "f_globals",
            "gi_frame",
            "tb_frame",
            "__loader__",
            "__spec__",
        ],
    ),
    ("precision", Note, "rounds to fewer bits", &["half", "bfloat16"]),
];

/// What a name means for a program: code of the finding, severity and reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Meaning {
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    pub(super) why: &'static str,
}

fn meaning(&(code, severity, why, _): &Rule) -> Meaning {
    Meaning { code, severity, why }
}

/// Of an import; none where nothing is to be said.
pub(super) fn of_import(path: &str) -> Option<Meaning> {
    let root = path.split('.').next().unwrap_or_default();
    if root.is_empty() {
        return Some(Meaning { code: "loading", severity: Violation, why: "loads code that is not in this file" });
    }
    let banned = MODULES.iter().find(|(.., names)| names.contains(&root)).map(meaning);
    let suspicious = |code, why| Some(Meaning { code, severity: Warning, why });
    banned.or_else(|| match path {
        _ if path.ends_with(".*") => suspicious("wildcard_import", "hides which names mean what"),
        _ if ALLOWED_MODULES.contains(&root) => None,
        _ => suspicious("unknown_import", "is none of the modules that programs are made of"),
    })
}

/// Of a dotted path.
pub(super) fn of_path(path: &str) -> Option<Meaning> {
    let is_below = |name: &&str| path == *name || path.strip_prefix(*name).is_some_and(|rest| rest.starts_with('.'));
    PATHS.iter().find(|(.., names)| names.iter().any(&is_below)).map(meaning).or_else(|| through_another(path))
}

/// Of a module that another one has imported: `torch.os` is `os`.
fn through_another(path: &str) -> Option<Meaning> {
    let mut parts = path.split('.');
    let is_module = parts.next().is_some_and(|root| ALLOWED_MODULES.contains(&root));
    let reached = parts.find(|part| REACHED.contains(part)).filter(|_| is_module)?;
    MODULES.iter().find(|(.., names)| names.contains(&reached)).map(meaning)
}

/// Of a function that everybody has.
pub(super) fn of_built_in(name: &str) -> Option<Meaning> {
    BUILT_IN.iter().find(|(.., names)| names.contains(&name)).map(meaning)
}

/// Of an attribute.
pub(super) fn of_attribute(name: &str) -> Option<Meaning> {
    ATTRIBUTES.iter().find(|(.., names)| names.contains(&name)).map(meaning)
}
