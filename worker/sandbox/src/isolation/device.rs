//! What a jailed process needs to reach one GPU through the driver.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The driver's library, as every program asks the loader for it.
const DRIVER_LIBRARY: &str = "libcuda.so.1";

/// Folders in which drivers put it where the loader was not told of it.
pub const DRIVER_FOLDERS: [&str; 7] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Device nodes that every process on a GPU opens.
const COMMON_NODES: [&str; 5] =
    ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/dxg"];

/// Where the kernel describes itself and its devices: the driver looks its devices up there.
pub(super) const KERNEL_VIEWS: [&str; 1] = ["/sys"];

/// Queues between the host and a device that a process gets. Drivers begin and end a context the faster the fewer there are,
/// of its own and of all others (`docs/evidence/contexts.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Queues {
    /// As many as the driver gives.
    #[default]
    Usual,
    /// As many for kernels, and one for copies between host and device: of programs that get their tensors on the device.
    OneForCopies,
    /// One: for processes that nobody times, whose streams may wait for each other.
    One,
}

/// A GPU, and how a jailed process gets to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAccess {
    /// The one device that the process is shown: its UUID, or its number.
    pub visible: String,
    /// Device nodes.
    pub nodes: Vec<PathBuf>,
    /// Folders with the driver's libraries, and with those of the toolkit that the program may use.
    pub library_folders: Vec<PathBuf>,
    /// Queues that the process gets.
    #[serde(default)]
    pub queues: Queues,
}

/// Why no GPU can be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceMissing {
    /// There is no driver.
    #[error("there is no NVIDIA driver: {DRIVER_LIBRARY} cannot be loaded ({reason})")]
    Driver {
        /// What the loader said.
        reason: String,
    },
    /// The driver has no devices.
    #[error(
        "there is no device node /dev/nvidia*: the kernel module is not loaded, or this container was given no GPU"
    )]
    Nodes,
}

impl DeviceAccess {
    /// Finds driver and device nodes of this machine. `visible` is the UUID of the device, or its number.
    pub fn find(visible: &str) -> Result<Self, DeviceMissing> {
        let driver = driver_folder()?;
        let nodes = device_nodes(Path::new("/dev"));
        if nodes.is_empty() {
            return Err(DeviceMissing::Nodes);
        }
        Ok(Self { visible: visible.to_owned(), nodes, library_folders: vec![driver], queues: Queues::default() })
    }

    /// With these queues.
    #[must_use]
    pub fn with_queues(self, queues: Queues) -> Self {
        Self { queues, ..self }
    }

    /// Also shows a folder with libraries.
    #[must_use]
    pub fn with_libraries(mut self, folder: PathBuf) -> Self {
        if !self.library_folders.contains(&folder) {
            self.library_folders.push(folder);
        }
        self
    }

    /// The variables that a process on a GPU is given. Nothing is kept from one process for the next.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let folders: Vec<String> =
            self.library_folders.iter().map(|folder| folder.to_string_lossy().into_owned()).collect();
        let queues: &[&str] = match self.queues {
            Queues::Usual => &[],
            Queues::OneForCopies => &["CUDA_DEVICE_MAX_COPY_CONNECTIONS"],
            Queues::One => &["CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"],
        };
        [
            ("CUDA_VISIBLE_DEVICES", self.visible.clone()),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
            ("CUDA_CACHE_DISABLE", "1".to_owned()),
            ("CUDA_MODULE_LOADING", "EAGER".to_owned()),
            ("LD_LIBRARY_PATH", folders.join(":")),
        ]
        .into_iter()
        .chain(queues.iter().map(|name| (*name, "1".to_owned())))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The folder from which this process would load the driver.
fn driver_folder() -> Result<PathBuf, DeviceMissing> {
    let mut reason = String::new();
    let beside_the_loader = DRIVER_FOLDERS.iter().map(|folder| Path::new(folder).join(DRIVER_LIBRARY));
    for name in std::iter::once(PathBuf::from(DRIVER_LIBRARY)).chain(beside_the_loader) {
        if name.is_absolute() && !name.exists() {
            continue;
        }
        match load(&name) {
            Ok(()) => {
                let folder = if name.is_absolute() { name.parent().map(Path::to_owned) } else { mapped_folder() };
                if let Some(folder) = folder {
                    return Ok(folder);
                }
                "it was loaded from an unknown place".clone_into(&mut reason);
            }
            Err(error) if reason.is_empty() => reason = error,
            Err(_) => {}
        }
    }
    Err(DeviceMissing::Driver { reason })
}

/// Loads the driver's library for good. It does nothing until it is asked to.
fn load(name: &Path) -> Result<(), String> {
    // SAFETY: the driver's own library, which every CUDA program loads in this way. It is never unloaded.
    let library = unsafe { libloading::Library::new(name) }.map_err(|error| error.to_string())?;
    std::mem::forget(library);
    Ok(())
}

/// Where a loaded driver lies, by this process's own map.
fn mapped_folder() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        Path::new(path).file_name()?.to_str()?.starts_with("libcuda.so").then_some(path)
    })?;
    Path::new(path).parent().map(Path::to_owned)
}

/// The nodes below a folder such as `/dev`.
fn device_nodes(folder: &Path) -> Vec<PathBuf> {
    let listed = |folder: &Path| {
        let entries = std::fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>());
        entries.unwrap_or_default().into_iter().map(|entry| entry.path())
    };
    let mut devices: Vec<PathBuf> = listed(folder).filter(|path| is_device(path)).collect();
    if !devices.is_empty() || folder.join("dxg").exists() {
        devices.extend(COMMON_NODES.iter().filter_map(|node| {
            let node = folder.join(Path::new(node).file_name()?);
            node.exists().then_some(node)
        }));
    }
    devices.extend(listed(&folder.join("nvidia-caps")));
    devices.sort();
    devices
}

/// `nvidia0`, `nvidia1`, ...
fn is_device(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("nvidia"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn devices_and_their_companions_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        assert!(device_nodes(folder.path()).is_empty());
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-nothing", "null"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<String> = device_nodes(folder.path())
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        assert_eq!(names, ["nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl"]);
    }

    #[test]
    fn a_process_on_a_device_sees_it_alone_and_keeps_nothing() {
        let access = DeviceAccess {
            visible: "GPU-1".to_owned(),
            nodes: Vec::new(),
            library_folders: vec!["/a".into()],
            queues: Queues::Usual,
        };
        let variables = access.with_libraries("/b".into()).environment();
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("CUDA_DEVICE_MAX_CONNECTIONS"), None, "what a result rests on has what the driver gives");
        assert_eq!(value("CUDA_DEVICE_MAX_COPY_CONNECTIONS"), None);
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("GPU-1"));
        assert_eq!(value("LD_LIBRARY_PATH"), Some("/a:/b"));
        assert_eq!(value("CUDA_CACHE_DISABLE"), Some("1"));
    }

    #[test]
    fn kernels_of_a_program_have_their_queues_whatever_its_copies_have() {
        let access = DeviceAccess {
            visible: "0".to_owned(),
            nodes: Vec::new(),
            library_folders: Vec::new(),
            queues: Queues::OneForCopies,
        };
        let few = |access: DeviceAccess| -> Vec<String> {
            let all = access.environment().into_iter().map(|(name, _)| name);
            all.filter(|name| name.ends_with("CONNECTIONS")).collect()
        };
        assert_eq!(few(access.clone()), ["CUDA_DEVICE_MAX_COPY_CONNECTIONS"]);
        assert_eq!(few(access.with_queues(Queues::One)).len(), 2);
    }
}
