//! Tables of system calls that programs have no honest use for.

/// Numbers that the C library's bindings do not have for every architecture. From 424 on, all architectures share them.
mod recent {
    pub(super) const QUOTACTL_FD: i64 = 443;
    pub(super) const MEMFD_SECRET: i64 = 447;
    pub(super) const PROCESS_MRELEASE: i64 = 448;
    pub(super) const CACHESTAT: i64 = 451;
    pub(super) const STATMOUNT: i64 = 457;
    pub(super) const LISTMOUNT: i64 = 458;
    pub(super) const LSM_GET_SELF_ATTR: i64 = 459;
    pub(super) const LSM_SET_SELF_ATTR: i64 = 460;
    pub(super) const LSM_LIST_MODULES: i64 = 461;
    pub(super) const MSEAL: i64 = 462;
    pub(super) const OPEN_TREE_ATTR: i64 = 467;
    pub(super) const FILE_SETATTR: i64 = 469;
    pub(super) const LISTNS: i64 = 470;
}

/// For every program: the network, other processes' memory, mounts and namespaces, the kernel's settings, and interfaces
/// that widen the attack surface.
pub(super) const ALWAYS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    recent::PROCESS_MRELEASE,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    recent::OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    recent::STATMOUNT,
    recent::LISTMOUNT,
    recent::LISTNS,
    recent::FILE_SETATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    recent::QUOTACTL_FD,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    recent::MEMFD_SECRET,
    recent::LSM_GET_SELF_ATTR,
    recent::LSM_SET_SELF_ATTR,
    recent::LSM_LIST_MODULES,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

/// In addition to [`ALWAYS`], calls that one processor family has.
#[cfg(target_arch = "x86_64")]
pub(super) const ALWAYS_HERE: &[i64] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_vhangup,
    libc::SYS__sysctl,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALWAYS_HERE: &[i64] = &[libc::SYS_kexec_file_load, libc::SYS_vhangup];

/// A process that leaves its group escapes the end of the group, unless it ends with its namespace. `nsys` starts every
/// program in a session of its own.
pub(super) const GROUPS: [i64; 2] = [libc::SYS_setsid, libc::SYS_setpgid];

/// For hosted processes: shared memory and queues that outlive a process.
pub(super) const HOSTED: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

/// For hosted processes, answered as an older kernel answers: calls that seal memory and that tell what is cached. A loader
/// that tries to use them goes on without.
pub(super) const HOSTED_UNKNOWN: &[i64] = &[recent::MSEAL, recent::CACHESTAT];

/// For loaded libraries, in addition: further programs and processes, anonymous files, and the choice of processor and
/// priority.
pub(super) const NATIVE: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_memfd_create,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_setpriority,
    libc::SYS_prlimit64,
];

/// In addition to [`NATIVE`], calls that one processor family has.
#[cfg(target_arch = "x86_64")]
pub(super) const NATIVE_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const NATIVE_HERE: &[i64] = &[];

/// What a GPU driver needs of [`NATIVE`]: threads, anonymous files, its limits and the processor that it runs on.
pub(super) const NEEDED_BY_DRIVERS: [i64; 4] =
    [libc::SYS_clone, libc::SYS_memfd_create, libc::SYS_prlimit64, libc::SYS_sched_setaffinity];

/// What Python needs of [`NATIVE`]: it loads extensions that were built ahead from memory.
pub(super) const NEEDED_BY_PYTHON: [i64; 1] = [libc::SYS_memfd_create];

/// What Python on a GPU needs of [`NATIVE`]: a program may compile at its first call, and the driver starts threads.
pub(super) const NEEDED_BY_PYTHON_ON_DEVICE: [i64; 4] =
    [libc::SYS_memfd_create, libc::SYS_clone, libc::SYS_execve, libc::SYS_prlimit64];

/// The calls of sockets.
pub(super) const SOCKETS: [i64; 7] = [
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// The calls that a driver makes for local sockets when it starts: it looks for a service that shares GPUs, and offers its
/// memory to other processes.
pub(super) const LOCAL_SOCKETS: [i64; 4] = [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen];

/// What a driver needs to start, and a program on a GPU does not: threads and timers could do a call's work between calls,
/// which the worker does not time.
pub(super) const AFTER_START: [i64; 5] =
    [libc::SYS_clone, libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_setitimer, libc::SYS_timerfd_create];

/// Signals whose first argument is a process, or a thread for `tkill`.
pub(super) const SIGNALS: [i64; 3] = [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill];

/// Signals with data, which no program of ours sends.
pub(super) const QUEUED_SIGNALS: [i64; 2] = [libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];
