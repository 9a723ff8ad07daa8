//! The cgroup of one jail.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxMeans;

use super::hierarchy::{self, Hierarchy};
use crate::report::{in_force, not_in_force};

/// Bytes of a cgroup's file that are read at most.
const MAX_FILE_BYTES: usize = 8 * 1024;

/// Looks at the state of a freezing cgroup before this thread gives up its processor in between.
const BUSY_LOOKS: u32 = 64;

/// Time between two looks after that.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// Limits of a jail's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CgroupLimits {
    /// Memory in bytes; none for no limit.
    pub(crate) memory_bytes: Option<u64>,
    /// Processes and threads.
    pub(crate) processes: u64,
    /// Share of the processors when they are busy. The default is 100.
    pub(crate) cpu_weight: u32,
}

/// Memory of all processes of a cgroup in bytes, without files that the kernel can drop from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// All of it.
    pub(crate) total: u64,
    /// Without shared memory.
    pub(crate) private: u64,
}

/// The memory that was full when the kernel killed a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FullMemory {
    /// The limit of the cgroup was reached.
    Own,
    /// The memory of the machine or of a cgroup around this one.
    Machine,
}

/// The cgroup of one jail. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(crate) struct JailCgroup {
    folder: PathBuf,
    freeze: File,
    events: File,
    /// Current memory and its parts, where the cgroup has the controller.
    memory: Option<(File, File)>,
    means: SandboxMeans,
}

impl JailCgroup {
    /// Creates a cgroup with these limits.
    pub(crate) fn create(hierarchy: &Hierarchy, limits: &CgroupLimits) -> Result<Self, String> {
        let folder = hierarchy.next_folder();
        let failed = |what: &str, error: std::io::Error| format!("{what} of {}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(|error| failed("creation", error))?;
        // From here on, dropping the value removes the folder.
        let opened = File::options().read(true).write(true).open(folder.join("cgroup.freeze"));
        let opened = opened.and_then(|freeze| Ok((freeze, File::open(folder.join("cgroup.events"))?)));
        let (freeze, events) = opened.map_err(|error| {
            let _ = std::fs::remove_dir(&folder);
            failed("cgroup.freeze", error)
        })?;
        let means = not_in_force("cgroup", "");
        let mut cgroup = Self { folder: folder.clone(), freeze, events, memory: None, means };
        let mut detail = Vec::new();
        if hierarchy.has("memory") {
            cgroup.write_limit("memory.max", limits.memory_bytes).map_err(|error| failed("memory.max", error))?;
            // Without swap accounting there is no such file, and then the limit above is all there is.
            cgroup.write_if_known("memory.swap.max", "0").map_err(|error| failed("memory.swap.max", error))?;
            cgroup.write_if_known("memory.oom.group", "1").map_err(|error| failed("memory.oom.group", error))?;
            let open = |name: &str| File::open(folder.join(name)).map_err(|error| failed(name, error));
            cgroup.memory = Some((open("memory.current")?, open("memory.stat")?));
            detail.push("memory".to_owned());
        }
        if hierarchy.has("pids") {
            cgroup.write("pids.max", &limits.processes.to_string()).map_err(|error| failed("pids.max", error))?;
            detail.push(format!("{} processes", limits.processes));
        }
        if hierarchy.has("cpu") {
            cgroup.write("cpu.weight", &limits.cpu_weight.to_string()).map_err(|error| failed("cpu.weight", error))?;
            detail.push(format!("processor weight {}", limits.cpu_weight));
        }
        let missing = hierarchy.missing().map_or_else(String::new, |reason| format!("; {reason}"));
        cgroup.means = if hierarchy.has("memory") && hierarchy.has("pids") {
            in_force("cgroup", &format!("limits of {}{missing}", detail.join(", ")))
        } else {
            not_in_force("cgroup", hierarchy.missing().unwrap_or("no controllers"))
        };
        Ok(cgroup)
    }

    /// Returns the folder of the cgroup.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the entry of its limits in a report.
    pub(crate) fn means(&self) -> &SandboxMeans {
        &self.means
    }

    /// Returns whether the kernel counts and limits the memory of this cgroup.
    pub(crate) fn counts_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Changes the limit on memory; none removes it.
    pub(crate) fn limit_memory(&self, bytes: Option<u64>) -> std::io::Result<()> {
        if self.counts_memory() { self.write_limit("memory.max", bytes) } else { Ok(()) }
    }

    /// Returns the memory with everything that the kernel charges, such as cached files, in bytes. Cheap to read.
    pub(crate) fn charged_bytes(&self) -> Option<u64> {
        read(&self.memory.as_ref()?.0).ok()?.trim().parse().ok()
    }

    /// Returns the memory that the processes use.
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        let text = read(&self.memory.as_ref()?.1).ok()?;
        let private = field(&text, "anon")?;
        Some(MemoryUse { total: private.saturating_add(field(&text, "shmem")?), private })
    }

    /// Returns the largest memory so far with everything that the kernel charges, in bytes. Kernels before 5.19 do not know.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        std::fs::read_to_string(self.folder.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// Returns which memory was full when the kernel killed a process of this cgroup; none where it killed none.
    pub(crate) fn full_memory(&self) -> Option<FullMemory> {
        full_memory(&std::fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default())
    }

    /// Stops all processes, and returns when the kernel reports that they are stopped. After the time limit the processes go
    /// on, and the result is an error.
    pub(crate) fn freeze(&self, limit: Duration) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cgroup.freeze: {error}");
        self.freeze.write_all_at(b"1", 0).map_err(failed)?;
        let deadline = Instant::now() + limit;
        for look in 0_u32.. {
            let began = Instant::now();
            let events = read(&self.events).map_err(|error| format!("cgroup.events: {error}"))?;
            if field(&events, "frozen") == Some(1) {
                return Ok(());
            }
            // A stall of this thread says nothing about the processes: only a look after the deadline does.
            if began > deadline {
                break;
            }
            if look > BUSY_LOOKS {
                std::thread::park_timeout(LOOK_INTERVAL);
            }
        }
        let _ = self.thaw();
        Err(format!("the cgroup was not frozen after {} ms", limit.as_millis()))
    }

    /// Lets all processes go on.
    pub(crate) fn thaw(&self) -> Result<(), String> {
        self.freeze.write_all_at(b"0", 0).map_err(|error| format!("cgroup.freeze: {error}"))
    }

    /// Kills all processes, frozen or not.
    pub(crate) fn kill(&self) {
        hierarchy::kill(&self.folder);
    }

    fn write(&self, name: &str, value: &str) -> std::io::Result<()> {
        std::fs::write(self.folder.join(name), value)
    }

    fn write_limit(&self, name: &str, value: Option<u64>) -> std::io::Result<()> {
        self.write(name, &value.map_or_else(|| "max".to_owned(), |value| value.to_string()))
    }

    fn write_if_known(&self, name: &str, value: &str) -> std::io::Result<()> {
        match File::options().write(true).open(self.folder.join(name)) {
            Ok(file) => file.write_all_at(value.as_bytes(), 0),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for JailCgroup {
    fn drop(&mut self) {
        // The supervisor has usually removed it already.
        if self.folder.exists() {
            self.kill();
            hierarchy::remove(&self.folder);
        }
    }
}

/// Reads a file of a cgroup from its beginning.
fn read(file: &File) -> std::io::Result<String> {
    let mut bytes = [0_u8; MAX_FILE_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned())
}

/// Reads `memory.events`: `oom_kill` counts the processes that any memory shortage killed, `oom` how often the cgroup's own limit was
/// reached.
fn full_memory(events: &str) -> Option<FullMemory> {
    let count = |name| field(events, name).unwrap_or(0);
    let full = if count("oom") > 0 { FullMemory::Own } else { FullMemory::Machine };
    (count("oom_kill") > 0).then_some(full)
}

/// Returns the number of a line `NAME NUMBER`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A folder with the files of a cgroup that the kernel reports to be in this state.
    fn cgroup(events: &str) -> (tempfile::TempDir, JailCgroup) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("cgroup.freeze", "0"), ("cgroup.events", events)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let cgroup = JailCgroup {
            folder: folder.path().join("removed"),
            freeze: File::options().read(true).write(true).open(folder.path().join("cgroup.freeze")).unwrap(),
            events: File::open(folder.path().join("cgroup.events")).unwrap(),
            memory: None,
            means: in_force("cgroup", ""),
        };
        (folder, cgroup)
    }

    #[test]
    fn a_cgroup_is_frozen_when_the_kernel_says_so_and_goes_on_otherwise() {
        let freeze = |folder: &tempfile::TempDir| std::fs::read_to_string(folder.path().join("cgroup.freeze")).unwrap();
        let limit = Duration::from_millis(5);
        let (folder, frozen) = cgroup("populated 1\nfrozen 1\n");
        assert_eq!((frozen.freeze(limit), freeze(&folder).as_str()), (Ok(()), "1"));
        let (folder, running) = cgroup("populated 1\nfrozen 0\n");
        assert!(running.freeze(limit).unwrap_err().contains("was not frozen"));
        assert_eq!(freeze(&folder), "0");
    }

    #[test]
    fn a_kill_is_the_jail_s_own_fault_only_where_its_limit_was_reached() {
        let events =
            |oom: u64, kills: u64| format!("low 0\nhigh 0\nmax 3\noom {oom}\noom_kill {kills}\noom_group_kill 0\n");
        assert_eq!(full_memory(&events(1, 1)), Some(FullMemory::Own));
        assert_eq!(full_memory(&events(0, 1)), Some(FullMemory::Machine));
        assert_eq!((full_memory(&events(1, 0)), full_memory("")), (None, None));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "anon 4096\nfile 100\nshmem 8192\nanon_thp 7\n";
        assert_eq!((field(text, "anon"), field(text, "shmem"), field(text, "sock")), (Some(4096), Some(8192), None));
        assert_eq!(field("populated 1\nfrozen 0\n", "frozen"), Some(0));
    }
}
