//! The cgroup of this process, and what it may do below it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::procfs::{self, PROC};

/// How the names of cgroups of this crate begin.
const PREFIX: &str = "nightshift-";

/// How the name of the cgroup ends into which a worker moves itself.
const OWN_SUFFIX: &str = "worker";

/// Controllers that limit a jail.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

/// How long the processes of a dead worker may take to exit after they were killed.
const EXIT_LIMIT: Duration = Duration::from_millis(500);

/// Time between two looks at them.
const EXIT_INTERVAL: Duration = Duration::from_millis(2);

/// Where this process creates cgroups.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    /// The cgroup that contains those of jails.
    folder: PathBuf,
    /// How names of cgroups of this process begin.
    owner: String,
    /// Controllers that the cgroups of jails have.
    controllers: Vec<String>,
    /// Why some of the wanted controllers are missing.
    missing: Option<String>,
    next: AtomicU64,
}

impl Hierarchy {
    /// Opens the hierarchy of this process.
    pub(super) fn open() -> Result<Self, String> {
        let read = |name: &str| std::fs::read_to_string(Path::new(PROC).join("self").join(name)).unwrap_or_default();
        let folder = own_cgroup(&read("mountinfo"), &read("cgroup"))?;
        Self::open_at(folder)
    }

    /// Opens the hierarchy with another cgroup as the one of this process.
    pub(super) fn open_at(folder: PathBuf) -> Result<Self, String> {
        let this = i32::try_from(std::process::id()).map_err(|error| error.to_string())?;
        let owner = owner_name(this).ok_or("this process is not in /proc")?;
        remove_leftovers(&folder);
        check_creation(&folder, &owner)?;
        let mut hierarchy = Self { folder, owner, controllers: Vec::new(), missing: None, next: AtomicU64::new(0) };
        hierarchy.missing = hierarchy.enable_controllers(this).err();
        let enabled = hierarchy.words("cgroup.subtree_control");
        let is_enabled = |name: &&&str| enabled.iter().any(|word| word == **name);
        hierarchy.controllers = WANTED.iter().filter(is_enabled).map(ToString::to_string).collect();
        Ok(hierarchy)
    }

    /// Returns whether cgroups of jails have a controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Returns why a wanted controller is missing.
    pub(super) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Returns the path of a new cgroup for a jail.
    pub(super) fn next_folder(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{}-{number}", self.owner))
    }

    /// Lets the children of this process's cgroup have the wanted controllers.
    ///
    /// A cgroup other than the root whose children have controllers must not contain processes itself. So this process moves
    /// into a child of its own, where it is the only process.
    fn enable_controllers(&self, this: i32) -> Result<(), String> {
        let (offered, enabled) = (self.words("cgroup.controllers"), self.words("cgroup.subtree_control"));
        let named = |words: &[String], name: &str| words.iter().any(|word| word == name);
        let absent: Vec<&str> = WANTED.into_iter().filter(|name| !named(&offered, name)).collect();
        let wanted: Vec<&str> =
            WANTED.into_iter().filter(|name| named(&offered, name) && !named(&enabled, name)).collect();
        if !wanted.is_empty() {
            // The root cgroup has no type and may contain processes.
            if self.folder.join("cgroup.type").exists() {
                self.move_into_child(this)?;
            }
            for name in &wanted {
                std::fs::write(self.folder.join("cgroup.subtree_control"), format!("+{name}"))
                    .map_err(|error| format!("enabling the controller {name} in {}: {error}", self.folder.display()))?;
            }
        }
        if absent.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} does not offer the controllers {} (an older hierarchy of version 1 may have them)",
            self.folder.display(),
            absent.join(", ")
        ))
    }

    fn move_into_child(&self, this: i32) -> Result<(), String> {
        let inhabitants = self.words("cgroup.procs");
        if inhabitants.is_empty() {
            return Ok(());
        }
        if inhabitants.iter().any(|pid| *pid != this.to_string()) {
            return Err(format!(
                "other processes are in {}, too: start the worker in a cgroup of its own, for example as a service with \
                 Delegate=yes",
                self.folder.display()
            ));
        }
        let own = self.folder.join(format!("{}-{OWN_SUFFIX}", self.owner));
        let failed = |error: std::io::Error| format!("moving the worker to {}: {error}", own.display());
        std::fs::create_dir(&own).map_err(failed)?;
        std::fs::write(own.join("cgroup.procs"), this.to_string()).map_err(|error| {
            let _ = std::fs::remove_dir(&own);
            failed(error)
        })
    }

    fn words(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }
}

/// Creates and removes a cgroup, to find out whether this process may.
fn check_creation(folder: &Path, owner: &str) -> Result<(), String> {
    let attempt = folder.join(format!("{owner}-attempt"));
    std::fs::create_dir(&attempt)
        .and_then(|()| std::fs::remove_dir(&attempt))
        .map_err(|error| format!("the worker may create no cgroups in {}: {error}", folder.display()))
}

/// Finds the folder of this process's cgroup from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn own_cgroup(mounts: &str, cgroups: &str) -> Result<PathBuf, String> {
    let path =
        cgroups.lines().find_map(|line| line.strip_prefix("0::")).ok_or("this kernel has no cgroup version 2")?;
    let mounted = mounts.lines().find_map(|line| {
        let (fields, details) = line.split_once(" - ")?;
        (details.split(' ').next() == Some("cgroup2")).then_some(())?;
        let mut fields = fields.split(' ').skip(3);
        Some((fields.next()?.to_owned(), PathBuf::from(fields.next()?)))
    });
    let (root, mount_point) = mounted.ok_or("no cgroup version 2 is mounted")?;
    let outside = || format!("the cgroup {path} of this process is not below the mounted {root}");
    let below = Path::new(path).strip_prefix(&root).map_err(|_| outside())?;
    let is_clean = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let folder = mount_point.join(below);
    if is_clean && folder.is_dir() { Ok(folder) } else { Err(outside()) }
}

/// Returns how the names of a process's cgroups begin: with its process namespace, its process id and its start time. No
/// later process has the same.
fn owner_name(pid: i32) -> Option<String> {
    let started = procfs::stat(Path::new(PROC), pid)?.start_ticks;
    Some(format!("{PREFIX}{}-{pid}-{started}", pid_namespace()?))
}

fn pid_namespace() -> Option<u64> {
    let name = std::fs::read_link(Path::new(PROC).join("self/ns/pid")).ok()?;
    name.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns whether a cgroup belongs to a worker of this process namespace that has ended.
fn is_leftover(name: &str) -> bool {
    let mut parts = name.strip_prefix(PREFIX).into_iter().flat_map(|name| name.split('-'));
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (Some(namespace), Some(pid), Some(started)) = (number(), number(), number()) else { return false };
    let Ok(pid) = i32::try_from(pid) else { return false };
    let owner = procfs::stat(Path::new(PROC), pid);
    pid_namespace() == Some(namespace) && owner.is_none_or(|stat| stat.start_ticks != started || stat.has_ended())
}

/// Kills and removes the cgroups of workers that have ended.
fn remove_leftovers(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for leftover in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_leftover)) {
        kill(&leftover.path());
        remove(&leftover.path());
    }
}

/// Kills the processes of a cgroup.
pub(crate) fn kill(folder: &Path) {
    if std::fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    // Kernels before 5.14 have no such file.
    let processes = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Removes a cgroup whose processes were killed, with those that a worker created in it. Processes may still be exiting for
/// a moment.
pub(super) fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_own = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_own && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let deadline = Instant::now() + EXIT_LIMIT;
    while std::fs::remove_dir(folder).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
        if Instant::now() > deadline {
            return;
        }
        std::thread::park_timeout(EXIT_INTERVAL);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn mounts(point: &Path, root: &str) -> String {
        format!(
            "22 1 0:21 / /proc rw - proc proc rw\n30 22 0:26 {root} {} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
            point.display()
        )
    }

    #[test]
    fn the_own_cgroup_is_found_below_the_mounted_one() {
        let point = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(point.path().join("a/b")).unwrap();
        let found = |root: &str, cgroups: &str| own_cgroup(&mounts(point.path(), root), cgroups);
        assert_eq!(found("/", "3:cpu:/x\n0::/a/b\n"), Ok(point.path().join("a/b")));
        assert_eq!(found("/pod", "0::/pod/a\n"), Ok(point.path().join("a")));
        assert!(found("/pod", "0::/elsewhere\n").unwrap_err().contains("is not below"));
        assert!(found("/", "0::/../a\n").unwrap_err().contains("is not below"));
        assert!(found("/", "3:cpu:/x\n").unwrap_err().contains("version 2"));
        assert!(own_cgroup("22 1 0:21 / /proc rw - proc proc rw\n", "0::/\n").unwrap_err().contains("is mounted"));
    }

    #[test]
    fn the_cgroups_of_a_process_that_has_ended_are_left_over() {
        let this = i32::try_from(std::process::id()).unwrap();
        let owner = owner_name(this).unwrap();
        assert!(!is_leftover(&format!("{owner}-7")) && !is_leftover(&format!("{owner}-{OWN_SUFFIX}")));
        let (namespace, started) = (pid_namespace().unwrap(), procfs::stat(Path::new(PROC), this).unwrap().start_ticks);
        assert!(is_leftover(&format!("{PREFIX}{namespace}-{this}-{}-7", started + 1)));
        assert!(!is_leftover(&format!("{PREFIX}{}-{this}-{}-7", namespace + 1, started + 1)), "of another namespace");
        assert!(!is_leftover("nightshift-mine") && !is_leftover("system.slice"));
    }

    #[test]
    fn the_processes_of_leftovers_are_killed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let this = i32::try_from(std::process::id()).unwrap();
        let living = format!("{}-1", owner_name(this).unwrap());
        let dead = format!("{PREFIX}{}-{this}-1-1", pid_namespace().unwrap());
        for name in [living.as_str(), dead.as_str(), "system.slice"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_leftovers(folder.path());
        let killed = |name: &str| folder.path().join(name).join("cgroup.kill").exists();
        assert!(killed(&dead) && !killed(&living) && !killed("system.slice"));
    }

    #[test]
    fn a_worker_among_other_processes_does_not_move() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("cgroup.type", "domain\n");
        write("cgroup.controllers", "cpu memory pids\n");
        write("cgroup.subtree_control", "");
        write("cgroup.procs", &format!("1\n{}\n", std::process::id()));
        let hierarchy = Hierarchy::open_at(folder.path().to_path_buf()).unwrap();
        assert!(hierarchy.missing().unwrap().contains("other processes"));
        assert!(!hierarchy.has("memory"));
    }

    #[test]
    fn controllers_that_are_enabled_already_need_no_move() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("cgroup.type", "domain\n");
        write("cgroup.controllers", "cpu memory pids\n");
        write("cgroup.subtree_control", "memory pids cpu\n");
        let hierarchy = Hierarchy::open_at(folder.path().to_path_buf()).unwrap();
        assert_eq!(hierarchy.missing(), None);
        assert!(hierarchy.has("memory") && hierarchy.has("pids") && hierarchy.has("cpu"));
        assert_ne!(hierarchy.next_folder(), hierarchy.next_folder());
        write("cgroup.controllers", "hugetlb\n");
        write("cgroup.subtree_control", "");
        let hierarchy = Hierarchy::open_at(folder.path().to_path_buf()).unwrap();
        assert!(hierarchy.missing().unwrap().contains("memory, pids, cpu"));
    }
}
