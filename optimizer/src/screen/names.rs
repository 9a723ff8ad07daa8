//! What no honest program has a use for, by name.

/// A group of names with one reason.
pub(super) struct Ban {
    /// Code of the finding.
    pub(super) code: &'static str,
    pub(super) why: &'static str,
    pub(super) names: &'static [&'static str],
    pub(super) prefixes: &'static [&'static str],
}

impl Ban {
    /// Why, as the end of a sentence that begins with the name.
    pub(super) fn why(&self) -> &'static str {
        self.why
    }
}

/// The C and system functions and objects.
const GLOBAL: &[Ban] = &[
    Ban {
        code: "threads",
        why: "starts or steers threads: a program has one thread",
        names: &["thrd_create", "thrd_join"],
        prefixes: &["pthread_", "omp_", "GOMP_", "__kmpc_"],
    },
    Ban {
        code: "processes",
        why: "starts or waits for processes",
        names: &[
            "fork",
            "vfork",
            "clone",
            "clone3",
            "posix_spawn",
            "posix_spawnp",
            "execl",
            "execlp",
            "execle",
            "execv",
            "execvp",
            "execvpe",
            "execve",
            "execveat",
            "fexecve",
            "system",
            "popen",
            "pclose",
            "waitpid",
            "wait3",
            "wait4",
            "waitid",
            "daemon",
            "setsid",
            "unshare",
            "setns",
        ],
        prefixes: &[],
    },
    Ban {
        code: "files",
        why: "reaches for files or descriptors: a program sees its tensors only",
        names: &[
            "fopen",
            "fopen64",
            "freopen",
            "fdopen",
            "open",
            "open64",
            "openat",
            "openat2",
            "creat",
            "tmpfile",
            "mkstemp",
            "mkdtemp",
            "opendir",
            "readdir",
            "scandir",
            "unlink",
            "unlinkat",
            "rename",
            "mkdir",
            "rmdir",
            "chdir",
            "chroot",
            "symlink",
            "readlink",
            "truncate",
            "ftruncate",
            "read",
            "readv",
            "pread",
            "preadv",
            "write",
            "writev",
            "pwrite",
            "pwritev",
            "close",
            "close_range",
            "dup",
            "dup2",
            "dup3",
            "pipe",
            "pipe2",
            "fcntl",
            "ioctl",
            "lseek",
            "sendfile",
            "splice",
            "tee",
            "vmsplice",
            "memfd_create",
            "shm_open",
            "shm_unlink",
            "shmget",
            "shmat",
            "fileno",
            "mq_open",
            "poll",
            "ppoll",
            "epoll_create1",
            "eventfd",
        ],
        prefixes: &["inotify_", "fanotify_", "io_uring_"],
    },
    Ban {
        code: "network",
        why: "reaches for the network",
        names: &[
            "socket",
            "socketpair",
            "listen",
            "accept4",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "getaddrinfo",
            "gethostbyname",
            "inet_pton",
            "inet_addr",
        ],
        prefixes: &[],
    },
    Ban {
        code: "loading",
        why: "loads or looks up code that was not built from this source",
        names: &["dlopen", "dlmopen", "dlsym", "dlvsym", "dladdr", "dladdr1", "dlinfo", "dl_iterate_phdr"],
        prefixes: &[],
    },
    Ban { code: "syscalls", why: "calls the kernel directly", names: &["syscall"], prefixes: &["__NR_", "SYS_"] },
    Ban {
        code: "foreign_memory",
        why: "reads or changes memory that is not the program's",
        names: &[
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "mprotect",
            "pkey_mprotect",
            "remap_file_pages",
            "prctl",
            "arch_prctl",
            "personality",
            "userfaultfd",
            "seccomp",
            "bpf",
            "backtrace",
            "getcontext",
            "setcontext",
            "makecontext",
            "swapcontext",
            "malloc_info",
            "mallinfo",
            "mallinfo2",
            "sbrk",
            "brk",
            "__builtin_return_address",
            "__builtin_frame_address",
            "__builtin_extract_return_addr",
            "_GLOBAL_OFFSET_TABLE_",
            "_DYNAMIC",
            "_r_debug",
            "__libc_stack_end",
            "__malloc_hook",
        ],
        prefixes: &["_dl_", "_rtld_"],
    },
    Ban {
        code: "clocks",
        why: "asks for the time: a program may not know how it is measured",
        names: &[
            "clock",
            "time",
            "clock_gettime",
            "clock_getres",
            "gettimeofday",
            "timespec_get",
            "ftime",
            "times",
            "getrusage",
            "clock_nanosleep",
            "nanosleep",
            "sleep",
            "usleep",
            "alarm",
            "setitimer",
            "timer_create",
            "timerfd_create",
            "_rdtsc",
            "__rdtsc",
            "__rdtscp",
            "_rdpmc",
            "__builtin_ia32_rdtsc",
            "__builtin_ia32_rdtscp",
            "__builtin_ia32_rdpmc",
            "__builtin_readcyclecounter",
        ],
        prefixes: &["perf_event_"],
    },
    Ban {
        code: "signals",
        why: "sends or catches signals",
        names: &[
            "signal",
            "sigaction",
            "sigaltstack",
            "sigprocmask",
            "sigqueue",
            "sigwait",
            "raise",
            "kill",
            "killpg",
            "tgkill",
            "tkill",
            "signalfd",
        ],
        prefixes: &[],
    },
    Ban {
        code: "exits",
        why: "ends the process or acts when it ends",
        names: &["exit", "_exit", "_Exit", "quick_exit", "atexit", "at_quick_exit", "on_exit", "__cxa_atexit"],
        prefixes: &[],
    },
    Ban {
        code: "environment",
        why: "looks at or changes what surrounds the process",
        names: &[
            "getenv",
            "secure_getenv",
            "setenv",
            "putenv",
            "unsetenv",
            "clearenv",
            "environ",
            "__environ",
            "getpid",
            "getppid",
            "gettid",
            "gethostname",
            "program_invocation_name",
            "program_invocation_short_name",
            "__libc_argv",
            "getauxval",
            "setrlimit",
            "sched_setaffinity",
            "sched_setscheduler",
            "setpriority",
            "mallopt",
        ],
        prefixes: &[],
    },
];

/// Names of the namespace `std`.
const STD: &[Ban] = &[
    Ban {
        code: "threads",
        why: "starts or steers threads: a program has one thread",
        names: &["thread", "jthread", "async", "this_thread", "packaged_task", "promise", "future", "shared_future"],
        prefixes: &[],
    },
    Ban {
        code: "files",
        why: "reaches for files or descriptors: a program sees its tensors only",
        names: &[
            "ifstream",
            "ofstream",
            "fstream",
            "filebuf",
            "wifstream",
            "wofstream",
            "wfstream",
            "basic_ifstream",
            "basic_ofstream",
            "basic_fstream",
            "basic_filebuf",
            "filesystem",
        ],
        prefixes: &[],
    },
    Ban {
        code: "clocks",
        why: "asks for the time: a program may not know how it is measured",
        names: &["chrono"],
        prefixes: &[],
    },
];

/// Functions of the C library whose replacement by an own definition changes what the runner does, in any linkage.
const NEVER_REDEFINED: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "posix_memalign",
    "mmap",
    "munmap",
    "clock_gettime",
    "gettimeofday",
    "dlopen",
    "dlsym",
    "strcmp",
    "strlen",
    "printf",
    "fprintf",
    "abort",
    "_init",
    "_fini",
    "__cxa_finalize",
    "__libc_start_main",
    "__errno_location",
];

/// Attributes that run code outside the calls, or give one function the name of another.
pub(super) const FORBIDDEN_ATTRIBUTES: &[(&str, &str)] = &[
    ("constructor", "runs code while the library is loaded"),
    ("destructor", "runs code while the library is unloaded"),
    ("init_priority", "runs code while the library is loaded"),
    ("ifunc", "runs code while the library is loaded"),
    ("alias", "gives a function the name of another"),
    ("weakref", "gives a function the name of another"),
    ("copy", "gives a function the properties of another"),
];

/// Macros of the contract, which a program may not define or undefine.
pub(super) const CONTRACT_MACROS: &[&str] = &[
    "NIGHTSHIFT_H",
    "NS_ABI_VERSION",
    "NS_WORKSPACE_BYTES",
    "NS_F32",
    "NS_F64",
    "NS_I32",
    "NS_REAL",
    "NS_EXPORT",
    "ns_real",
    "ns_tensor",
    "ns_run",
    "ns_init",
    "ns_free",
];

/// The ban on a global name, when there is one.
pub(super) fn global(name: &str) -> Option<&'static Ban> {
    find(GLOBAL, name)
}

/// The ban on a name of `std`, when there is one. C functions live there, too.
pub(super) fn of_std(name: &str) -> Option<&'static Ban> {
    find(STD, name).or_else(|| global(name))
}

/// The ban on a name that only `std` has: what an unqualified use means after `using namespace std`.
pub(super) fn only_of_std(name: &str) -> Option<&'static Ban> {
    find(STD, name)
}

/// Whether a definition of that name replaces a function of the C library.
pub(super) fn replaces_libc(name: &str, c_linkage: bool) -> bool {
    NEVER_REDEFINED.contains(&name) || (c_linkage && global(name).is_some())
}

pub(super) fn find(bans: &'static [Ban], name: &str) -> Option<&'static Ban> {
    bans.iter().find(|ban| ban.names.contains(&name) || ban.prefixes.iter().any(|prefix| name.starts_with(prefix)))
}
