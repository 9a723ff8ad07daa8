//! `/proc` and `/sys`: what is seen of other processes, and what can be written.

use std::path::Path;

use nightshift_sandbox::process::SandboxChoice;

use crate::jails::{HOSTED, Kind, attack as run_attack};
use crate::machine::{choices, in_force, isolated_files, landlock, namespaces};
use crate::programs::{DONE, try_to_read, try_to_write};
use crate::{Test, tests};

/// Files of the kernel that a program must not write.
const SETTINGS: [&str; 14] = [
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/proc/self/../sys/kernel/hostname",
    "/proc/1/../sysrq-trigger",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
    "/sys/kernel/profiling",
    "/sys/fs/cgroup/cgroup.procs",
];

/// Files of another process that a program must not use.
const OF_PROCESSES: [&str; 6] = ["mem", "oom_score_adj", "comm", "clear_refs", "coredump_filter", "autogroup"];

/// Files that a private root makes read-only.
const READ_ONLY: [&str; 5] = [
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/swappiness",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// Files that tell the kernel's secrets.
const SECRETS: [&str; 5] = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg", "/proc/kpageflags"];

pub(crate) fn tests() -> Vec<Test> {
    tests![
        isolated_files => settings_of_the_kernel_and_other_processes_cannot_be_written,
        namespaces => a_private_root_shows_own_processes_only,
        isolated_files => a_program_names_its_own_threads,
        namespaces => settings_are_read_only_and_secrets_are_empty_in_a_private_root,
        landlock => without_a_private_root_a_program_writes_to_its_own_threads_only,
        namespaces => a_command_sees_nothing_of_the_kernel,
    ]
}

/// Tries everything. The argument is the worker's process id.
pub(crate) fn attack(worker: &str) {
    for path in SETTINGS {
        try_to_write(path);
    }
    for pid in ["1", "self/../1", worker] {
        for file in OF_PROCESSES {
            try_to_write(&format!("/proc/{pid}/{file}"));
        }
        for file in ["mem", "environ", "maps", "fd/0", "root/etc/hostname"] {
            try_to_read(&format!("/proc/{pid}/{file}"));
        }
    }
    // Masked files can be opened and are empty.
    for path in SECRETS {
        if std::fs::File::open(path)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()))
            .is_ok_and(|n| n > 0)
        {
            println!("read {path}");
        }
    }
    let own = std::process::id();
    let others = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = others.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    println!("others {}", others.filter(|pid| *pid != own && *pid != 1).count());
}

fn settings_of_the_kernel_and_other_processes_cannot_be_written() {
    for means in choices() {
        for kind in HOSTED {
            let prefix = if kind == Kind::PythonOnDevice { "on-device " } else { "" };
            let (ended, _scratch) = run_attack(kind, means, &format!("{prefix}kernel-files {}", std::process::id()));
            let (last, succeeded) = ended.lines.split_last().unwrap();
            assert_eq!(last, DONE, "{means:?} {kind:?}: {}", ended.stderr);
            let holes: Vec<&String> = succeeded.iter().filter(|line| !line.starts_with("others ")).collect();
            assert!(holes.is_empty(), "{means:?} {kind:?}: {holes:?}");
        }
    }
}

fn a_private_root_shows_own_processes_only() {
    for means in [SandboxChoice::Best, SandboxChoice::Namespaces] {
        for kind in [Kind::NativeOnDevice, Kind::Python] {
            let (ended, _scratch) = run_attack(kind, means, &format!("kernel-files {}", std::process::id()));
            assert!(
                in_force(&ended.report, "proc") && in_force(&ended.report, "mount_namespace"),
                "{:?}",
                ended.report
            );
            assert!(ended.lines.contains(&"others 0".to_owned()), "{means:?} {kind:?}: {:?}", ended.lines);
        }
    }
}

fn a_program_names_its_own_threads() {
    for means in choices() {
        let script = "printf named > /proc/self/task/$$/comm && cat /proc/$$/comm; echo x > /proc/sys/kernel/hostname";
        let (ended, _scratch) = run_attack(Kind::Tool, means, script);
        assert_eq!(ended.lines, ["named"], "{means:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("hostname"), "{means:?}: {}", ended.stderr);
    }
}

/// Prints which files lie on a read-only mount, and which can be read and are empty. Their permissions protect them, too,
/// and are no part of this.
pub(crate) fn print_protection() {
    for path in READ_ONLY {
        let is_read_only =
            rustix::fs::statvfs(path).is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        println!("{path} {is_read_only}");
    }
    for path in SECRETS {
        println!("{path} {}", std::fs::read(path).is_ok_and(|content| content.is_empty()));
    }
}

fn settings_are_read_only_and_secrets_are_empty_in_a_private_root() {
    for means in [SandboxChoice::Best, SandboxChoice::Namespaces] {
        let (ended, _scratch) = run_attack(Kind::NativeOnDevice, means, "protection");
        let existing = READ_ONLY.iter().chain(&SECRETS).filter(|path| Path::new(path).exists());
        for path in existing {
            assert!(ended.lines.contains(&format!("{path} true")), "{means:?}: {path}: {:?}", ended.lines);
        }
    }
}

/// The files belong to the program's own user, so that nothing but Landlock refuses to write to them.
fn without_a_private_root_a_program_writes_to_its_own_threads_only() {
    let script = "for f in oom_score_adj coredump_filter comm; do (: > /proc/self/$f) && echo wrote; done; \
                  printf named > /proc/self/task/$$/comm && echo named";
    let (ended, _scratch) = run_attack(Kind::Tool, SandboxChoice::Landlock, script);
    assert_eq!(ended.lines, ["named"], "{}", ended.stderr);
    let (ended, _scratch) = run_attack(Kind::Tool, SandboxChoice::None, script);
    assert_eq!(ended.lines, ["wrote", "wrote", "wrote", "named"], "{}", ended.stderr);
}

fn a_command_sees_nothing_of_the_kernel() {
    let (ended, _scratch) = run_attack(Kind::Command, SandboxChoice::Best, "ls /proc /sys 2>/dev/null | wc -l");
    assert_eq!(ended.lines, ["0"]);
    assert!(Path::new("/proc/sys/kernel").exists());
}
