//! Programs that attack the machine or what others know, and a compiler that is made to. What is kept from them is kept
//! by the kernel; what they do to themselves is reported as what it is.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{ExecutionContext, Place};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::task::{Distribution, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{CancelFlag, JailedCommand, Limits, ProcessResult, SandboxChoice, run_jailed};
use workshop::{REFERENCE, ROADS, Workshop, host, limits, program, task};

/// Reference and truth, built once.
static ORACLE: LazyLock<(Workshop, PathBuf, PathBuf)> = LazyLock::new(|| {
    let workshop = Workshop::new();
    let reference = workshop.library("reference", REFERENCE, &[]);
    let truth = workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]);
    (workshop, reference, truth)
});

fn check_on(means: SandboxChoice, preamble: &str, body: &str) -> CheckReport {
    check_of(&task(), means, preamble, body)
}

fn check_of(task: &TaskSpec, means: SandboxChoice, preamble: &str, body: &str) -> CheckReport {
    let workshop = Workshop::new();
    let candidate = workshop.library("candidate", &program(preamble, body), &[]);
    let (_, reference, truth) = &*ORACLE;
    let libraries = Libraries { candidate, reference: reference.clone(), truth: truth.clone() };
    let (host, cancel, memory) = (host(means), CancelFlag::default(), HostMemory::new(None));
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
    check(&context, task, &libraries, true, &mut SecretSeeds::from_os().unwrap()).unwrap()
}

fn assert_nothing_found(preamble: &str, search: &str) {
    for means in ROADS {
        let report = check_on(means, preamble, &format!("if (int found = {search}()) return found; HONEST"));
        assert_eq!(report.end, ProcessEnd::Finished, "{means:?}: {}", report.printed);
        assert!(report.cases.iter().all(|case| case.passed), "{means:?}");
    }
}

#[test]
fn a_runner_holds_one_socket_and_the_standard_streams_and_no_words_of_its_parent() {
    let search = r"
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cstdio>
extern char **environ;
static int inventory() {
    int others = 0;
    for (int fd = 3; fd < 4096; fd++) {
        if (fcntl(fd, F_GETFD) < 0) continue;
        int type = 0;
        socklen_t size = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return fd;
        others++;
    }
    if (others != 1) return 1;
    if (environ && *environ) { puts(*environ); return 2; }
    char byte;
    if (read(0, &byte, 1) != 0) return 3;
    return 0;
}
";
    assert_nothing_found(search, "inventory");
}

#[test]
fn neither_other_processes_nor_their_memory_can_be_reached() {
    let search = r#"
#include <fcntl.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <initializer_list>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cstdio>
static int reach() {
    static char bytes[64];
    int parent = getppid();
    int near[] = {1, 2, 3, parent, parent - 1, parent + 1, (int)getpid() + 1};
    for (int pid : near) {
        if (pid <= 0 || pid == getpid()) continue;
        char path[64];
        for (const char *file : {"mem", "maps", "environ", "fd/3", "cmdline", "root/etc/passwd"}) {
            snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
            if (open(path, O_RDONLY) >= 0) return 1;
        }
        if (syscall(SYS_pidfd_open, pid, 0) >= 0) return 2;
        iovec here = {bytes, sizeof bytes}, there = {(void *)&reach, sizeof bytes};
        if (process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0) return 3;
        if (kill(pid, 0) == 0) return 4;
    }
    if (kill(0, SIGTERM) == 0 || kill(-1, SIGCONT) == 0) return 5;
    if (shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0) return 6;
    if (msgget(1, IPC_CREAT | 0600) >= 0) return 7;
    if (mq_open("/nightshift", O_CREAT | O_RDWR, 0600, nullptr) != (mqd_t)-1) return 8;
    if (shm_open("/nightshift", O_CREAT | O_RDWR, 0600) >= 0) return 9;
    for (const char *path : {".", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/home", "/root", "/"})
        if (open(path, O_TMPFILE | O_RDWR, 0600) >= 0) return 10;
    if (open("left", O_CREAT | O_RDWR, 0600) >= 0) return 11;
    if (symlink("/etc/passwd", "link") == 0 || mkdir("folder", 0700) == 0) return 12;
    rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &more) == 0) return 13;
    if (syscall(SYS_setpriority, PRIO_PROCESS, parent, 19) == 0) return 14;
    timeval now = {1, 0};
    if (settimeofday(&now, nullptr) == 0) return 15;
    if (syscall(SYS_perf_event_open, 0, 0, -1, -1, 0) >= 0) return 16;
    return 0;
}
"#;
    assert_nothing_found(search, "reach");
}

#[test]
fn what_a_program_does_to_itself_is_reported_as_what_it_is() {
    let includes = "#include <csetjmp>\n#include <csignal>\n#include <cstdlib>\n#include <sys/mman.h>\n#include <unistd.h>\n\
                    static int deep(volatile char *p) { volatile char more[4096]; more[0] = p ? *p : 1; return deep(more) + more[0]; }";
    let end = |preamble: &str, body: &str| check_on(SandboxChoice::Best, &format!("{includes}\n{preamble}"), body).end;
    let crashed = |signal: i32, name: &str| ProcessEnd::Crashed { signal, signal_name: name.to_owned() };
    let limit_ms = 2_000;
    let mut hasty = task();
    hasty.limits.call_timeout_ms = limit_ms;
    for hangs in
        ["raise(SIGSTOP); HONEST", "signal(SIGTERM, SIG_IGN); for (;;) pause();", "alarm(60); for (;;) pause();"]
    {
        let report = check_of(&hasty, SandboxChoice::Best, includes, hangs);
        assert_eq!(report.end, ProcessEnd::TimedOut { limit_ms }, "{hangs}");
    }
    assert_eq!(end("", "y[0] = deep(nullptr);"), crashed(libc::SIGSEGV, "SIGSEGV"));
    assert_eq!(end("", "raise(SIGKILL);"), crashed(libc::SIGKILL, "SIGKILL"));
    // The reserved address space is not memory; touching it is.
    let huge = "void *p = mmap(nullptr, 1ull << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); \
                if (p == MAP_FAILED) return 9; HONEST";
    assert_eq!(end("", huge), ProcessEnd::CallFailed { entry_point: "ns_run".to_owned(), status: 9 });
    let shared = "char *p = (char *)mmap(nullptr, 512 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); \
                  if (p == MAP_FAILED) return 9; for (size_t i = 0; i < (512 << 20); i += 4096) p[i] = 1; HONEST";
    let shared = end("", shared);
    assert!(matches!(shared, ProcessEnd::MemoryExceeded { .. }), "{shared:?}");
    // Code that runs at the end does not get to speak for the runner.
    let at_exit =
        "static void late() { for (int fd = 3; fd < 64; fd++) { ssize_t n = write(fd, \"{}\", 2); (void)n; } }";
    let late = end(at_exit, "atexit(late); exit(0);");
    assert!(matches!(late, ProcessEnd::Exited { status: 0 } | ProcessEnd::ProtocolBroken { .. }), "{late:?}");
    let constructor = "__attribute__((constructor)) static void early() { for (int fd = 3; fd < 64; fd++) { ssize_t n = write(fd, \"{}\", 2); (void)n; } }";
    let early = end(constructor, "HONEST");
    assert!(matches!(early, ProcessEnd::ProtocolBroken { .. }), "{early:?}");
    // A jump into a frame that is gone ends somehow, and only this process; or it comes back as from a call that wrote nothing.
    let preamble =
        "static jmp_buf there; int ns_init(const ns_tensor *, int32_t, void **) { setjmp(there); return 0; }";
    let jump = check_on(SandboxChoice::Best, &format!("{includes}\n{preamble}"), "longjmp(there, 1);");
    let right = jump.cases.iter().filter(|case| case.passed).count();
    assert!(right == 0 && (jump.end != ProcessEnd::Finished || !jump.cases.is_empty()), "{jump:?}");
}

fn compile_hostile(source: &str) -> (ProcessResult, Duration) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hostile.cpp"), source).unwrap();
    let command = JailedCommand {
        program: PathBuf::from("/usr/bin/g++"),
        args: ["-std=c++20", "-O2", "-fPIC", "-shared", "hostile.cpp", "-o", "hostile.so"].map(Into::into).into(),
        read_only: Vec::new(),
        scratch: folder.path().to_owned(),
        env: Vec::new(),
        limits: Limits { wall_ms: 6_000, cpu_s: 7, memory_bytes: 512 << 20, ..limits() },
    };
    let started = Instant::now();
    (run_jailed(&host(SandboxChoice::Best).jail, &command, &CancelFlag::default()).unwrap(), started.elapsed())
}

#[test]
fn a_source_that_exhausts_the_compiler_is_ended() {
    let sources = [
        "#include \"hostile.cpp\"\n",
        "#include \"/dev/zero\"\n",
        "template <int N> struct T { static constexpr int v = T<N - 1>::v + T<N - 2>::v + T<N + 1>::v; }; int x = T<9>::v;",
        "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) s += i ^ j; return s; } constexpr long v = f(1L << 40);",
        "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\n#define C(x) B(B(B(x)))\nint x = C(C(+ 1));",
        "char big[] = {1}; asm(\".section .data\\n.fill 0x7fffffff, 8, 1\\n\");",
        "asm(\".incbin \\\"/dev/zero\\\"\");",
    ];
    for source in sources {
        let (result, took) = compile_hostile(source);
        assert_ne!(result.end, ProcessEnd::Finished, "{source}");
        assert!(took < Duration::from_mins(1), "{source}: {took:?}");
    }
}

#[test]
fn a_source_cannot_read_secrets_through_the_assembler() {
    let (result, _) = compile_hostile("asm(\".incbin \\\"/etc/passwd\\\"\");");
    assert_eq!(result.end, ProcessEnd::Exited { status: 1 }, "{}", String::from_utf8_lossy(&result.stderr));
}

#[test]
fn code_for_one_distribution_is_found_by_inputs_of_other_sizes_and_signs() {
    let mut task = task();
    task.inputs[0].distribution = Distribution::Uniform { low: 1.0, high: 2.0 };
    for (case, value) in [
        ("scaled_up", "std::min(x[i], 4.0f)"),
        ("scaled_down", "x[i] > -0.5f && x[i] < 0.5f ? 0.0f : x[i]"),
        ("signs_flipped", "std::abs(x[i])"),
    ] {
        let preamble = "#include <algorithm>\n#include <cmath>";
        let body = format!("EVERY(const float v = {value}; y[i] = v * w[c] + b[c])");
        let report = check_of(&task, SandboxChoice::Best, preamble, &body);
        let failed = |name: &str| report.cases.iter().any(|case| case.inputs == name && !case.passed);
        assert!(failed(case) && !failed("declared"), "{case}: {:?}", report.cases);
    }
}
