//! Facts of a machine, read from the files in which Linux describes it.

use std::path::Path;

use nightshift_protocol::machine::{CoreFacts, MachineFacts, SandboxReport, Toolchain};

/// Instruction-set extensions that matter to a kernel's author, as Linux names them.
const WORTH_KNOWING: [&str; 27] = [
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "bmi2",
    "avx_vnni",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "avx512cd",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimdhp",
    "asimddp",
    "fphp",
    "sve",
    "sve2",
    "i8mm",
    "bf16",
    "svebf16",
];

/// The hardware and the system, without compiler and sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// Host name.
    pub host: String,
    /// Operating system and kernel.
    pub os: String,
    /// Processor model.
    pub processor: String,
    /// Usable cores.
    pub cores: u32,
    /// Every extension that the system names: `-march=native` builds differ with them.
    pub features: Vec<String>,
    /// Memory in bytes: the machine's, or the control group's limit when that is smaller.
    pub memory_bytes: u64,
    /// Last-level cache in bytes, when known.
    pub last_level_cache_bytes: Option<u64>,
    /// The first core, as far as the system describes it.
    pub core: Option<CoreFacts>,
}

/// Reads the hardware of the machine whose root folder is given. `usable_cores` is what the scheduler grants this
/// process, when it is known: affinity and quotas do not show in the processor's description.
#[must_use]
pub fn read_hardware(root: &Path, usable_cores: Option<u32>) -> Hardware {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let cpuinfo = read("proc/cpuinfo");
    let described = u32::try_from(cpuinfo.lines().filter(|line| field(line, "processor").is_some()).count());
    let described = described.unwrap_or(1).max(1);
    Hardware {
        host: first_line(&read("proc/sys/kernel/hostname")).unwrap_or("unknown").to_owned(),
        os: operating_system(&read("etc/os-release"), &read("proc/sys/kernel/osrelease")),
        processor: processor(&cpuinfo),
        cores: usable_cores.map_or(described, |usable| usable.min(described).max(1)),
        features: features(&cpuinfo),
        memory_bytes: memory_bytes(
            &read("proc/meminfo"),
            &[read("sys/fs/cgroup/memory.max"), read("sys/fs/cgroup/memory/memory.limit_in_bytes")],
        ),
        last_level_cache_bytes: data_caches(root).last().map(|(_, bytes)| *bytes),
        core: core(root),
    }
}

/// Reads the hardware of this machine.
#[must_use]
pub fn this_hardware() -> Hardware {
    let usable = std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok());
    read_hardware(Path::new("/"), usable)
}

/// The facts that are recorded with every measurement.
#[must_use]
pub fn facts(hardware: Hardware, cpp_toolchain: Option<Toolchain>, sandbox: SandboxReport) -> MachineFacts {
    let known = |feature: &String| WORTH_KNOWING.contains(&feature.as_str());
    MachineFacts {
        host: hardware.host,
        os: hardware.os,
        processor: hardware.processor,
        cores: hardware.cores,
        features: hardware.features.into_iter().filter(known).collect(),
        memory_bytes: hardware.memory_bytes,
        last_level_cache_bytes: hardware.last_level_cache_bytes,
        core: hardware.core,
        cpp_toolchain,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox,
    }
}

fn first_line(text: &str) -> Option<&str> {
    text.lines().next().map(str::trim).filter(|line| !line.is_empty())
}

/// The value of a `name : value` line.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    (key.trim() == name).then(|| value.trim())
}

fn field_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| field(line, name)).filter(|value| !value.is_empty())
}

fn operating_system(os_release: &str, kernel: &str) -> String {
    let pretty =
        os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"'));
    let kernel = first_line(kernel).unwrap_or("unknown");
    format!("{}, kernel {kernel}", pretty.unwrap_or("Linux"))
}

fn processor(cpuinfo: &str) -> String {
    if let Some(model) = field_of(cpuinfo, "model name") {
        return model.to_owned();
    }
    // Arm names the maker and the part as numbers only.
    match (field_of(cpuinfo, "CPU implementer"), field_of(cpuinfo, "CPU part")) {
        (Some(maker), Some(part)) => format!("{} implementer {maker} part {part}", std::env::consts::ARCH),
        _ => std::env::consts::ARCH.to_owned(),
    }
}

fn features(cpuinfo: &str) -> Vec<String> {
    let flags = field_of(cpuinfo, "flags").or_else(|| field_of(cpuinfo, "Features")).unwrap_or("");
    let mut features: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    features.sort_unstable();
    features.dedup();
    features
}

fn memory_bytes(meminfo: &str, control_group_limits: &[String]) -> u64 {
    let total = field_of(meminfo, "MemTotal")
        .and_then(|value| value.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024));
    let limit = control_group_limits.iter().filter_map(|text| text.trim().parse::<u64>().ok()).min();
    limit.map_or(total, |limit| limit.min(total))
}

/// Returns level and size in bytes of the first core's caches that hold data, the lowest level first.
fn data_caches(root: &Path) -> Vec<(u32, u64)> {
    let folder = root.join("sys/devices/system/cpu/cpu0/cache");
    let read = |entry: &Path, name: &str| std::fs::read_to_string(entry.join(name)).unwrap_or_default();
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut caches: Vec<(u32, u64)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let level: u32 = read(&path, "level").trim().parse().ok()?;
            let holds_data = read(&path, "type").trim() != "Instruction";
            let size_bytes = size_in_bytes(read(&path, "size").trim())?;
            holds_data.then_some((level, size_bytes))
        })
        .collect();
    caches.sort_unstable();
    caches
}

/// Returns the facts that the system gives of the first core.
fn core(root: &Path) -> Option<CoreFacts> {
    let read = |path: &str| std::fs::read_to_string(root.join("sys/devices/system/cpu/cpu0").join(path)).ok();
    let caches = data_caches(root);
    let of_level = |wanted: u32| caches.iter().find(|(level, _)| *level == wanted).map(|(_, bytes)| *bytes);
    let facts = CoreFacts {
        l1_bytes: of_level(1),
        l2_bytes: of_level(2),
        threads: read("topology/thread_siblings_list").and_then(|list| u32::try_from(cpus_in(&list)).ok()),
        max_clock_mhz: read("cpufreq/cpuinfo_max_freq").and_then(|khz| Some(khz.trim().parse::<u32>().ok()? / 1_000)),
    };
    (facts != CoreFacts::default()).then_some(facts)
}

/// How many processors a list such as `0-1,8` names.
fn cpus_in(list: &str) -> usize {
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    let count = |range: &str| match range.split_once('-') {
        Some((first, last)) => Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1),
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    ranges.filter_map(count).sum()
}

/// `48K`, `2M` or plain bytes.
fn size_in_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const X86: &str = "processor\t: 0\nmodel name\t: Xeon Example\nflags\t\t: fpu sse4_2 fma avx2 avx512f rdtscp\n\n\
                       processor\t: 1\nmodel name\t: Xeon Example\nflags\t\t: fpu sse4_2 fma avx2 avx512f rdtscp\n";

    #[test]
    fn an_x86_machine_is_described() {
        let root = machine(&[
            ("proc/cpuinfo", X86),
            ("proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\n"),
            ("proc/sys/kernel/hostname", "night\n"),
            ("proc/sys/kernel/osrelease", "6.18.0\n"),
            ("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/type", "Unified\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/size", "32M\n"),
            ("sys/devices/system/cpu/cpu0/cache/index2/level", "2\n"),
            ("sys/devices/system/cpu/cpu0/cache/index2/type", "Unified\n"),
            ("sys/devices/system/cpu/cpu0/cache/index2/size", "2M\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
        ]);
        let facts = facts(read_hardware(root.path(), None), None, SandboxReport::default());
        assert_eq!(facts.host, "night");
        assert_eq!(facts.os, "Debian GNU/Linux 12 (bookworm), kernel 6.18.0");
        assert_eq!(facts.processor, "Xeon Example");
        assert_eq!(facts.cores, 2);
        assert_eq!(facts.features, ["avx2", "avx512f", "fma", "sse4_2"]);
        assert_eq!(facts.memory_bytes, 8_192_000_000);
        assert_eq!(facts.last_level_cache_bytes, Some(32 << 20));
        let core = CoreFacts {
            l1_bytes: Some(48 << 10),
            l2_bytes: Some(2 << 20),
            threads: Some(2),
            max_clock_mhz: Some(3_800),
        };
        assert_eq!(facts.core, Some(core));
        assert_eq!([cpus_in("0\n"), cpus_in("0-1,8"), cpus_in("")], [1, 3, 0]);
    }

    #[test]
    fn an_arm_machine_is_described() {
        let root = machine(&[(
            "proc/cpuinfo",
            "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n",
        )]);
        let hardware = read_hardware(root.path(), None);
        assert!(hardware.processor.contains("implementer 0x41 part 0xd40"), "{}", hardware.processor);
        assert_eq!(hardware.features, ["asimd", "fp", "sve"]);
    }

    #[test]
    fn limits_of_the_process_are_smaller_than_the_machine() {
        let root = machine(&[
            ("proc/cpuinfo", X86),
            ("proc/meminfo", "MemTotal: 8000000 kB\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ]);
        let hardware = read_hardware(root.path(), Some(1));
        assert_eq!((hardware.cores, hardware.memory_bytes), (1, 1 << 30));
    }

    #[test]
    fn a_machine_that_says_nothing_is_still_described() {
        let root = machine(&[]);
        let hardware = read_hardware(root.path(), None);
        assert_eq!((hardware.cores, hardware.memory_bytes, hardware.last_level_cache_bytes), (1, 0, None));
        assert_eq!(hardware.host, "unknown");
    }
}
