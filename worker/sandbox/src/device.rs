//! A GPU that a sandboxed process may use, and what it needs to reach the GPU through the driver.

mod nodes;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The driver's library under the name by which programs load it.
const DRIVER_LIBRARY: &str = "libcuda.so.1";

/// Folders in which installers put the driver's library and which the loader may not search.
pub const DRIVER_FOLDERS: [&str; 7] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Files of the kernel module.
const KERNEL_MODULE: &str = "/proc/driver/nvidia";

/// A GPU and how a sandboxed process reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAccess {
    /// The GPU that CUDA shows to the process: its UUID or its number.
    pub visible: String,
    /// Device nodes.
    pub nodes: Vec<PathBuf>,
    /// Why nodes of other GPUs are among them; none when they are not.
    #[serde(default)]
    pub shared_nodes: Option<String>,
    /// Folders with the driver's libraries and with those of the toolkit.
    pub library_folders: Vec<PathBuf>,
}

/// Why no GPU can be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceMissing {
    /// The driver's library cannot be loaded.
    #[error("there is no NVIDIA driver: {DRIVER_LIBRARY} cannot be loaded ({reason})")]
    Driver {
        /// The loader's message.
        reason: String,
    },
    /// There are no device nodes.
    #[error(
        "there is no device node /dev/nvidia*: the kernel module is not loaded, or this container was given no GPU"
    )]
    Nodes,
}

impl DeviceAccess {
    /// Finds the driver and the device nodes of a GPU, which is named by its UUID or by its number.
    ///
    /// `minor` is the minor number of its node as the management library reports it. It serves where the kernel module's
    /// files do not tell it, as for MIG instances.
    pub fn find(visible: &str, minor: Option<u32>) -> Result<Self, DeviceMissing> {
        let driver = driver_folder()?;
        let nodes = nodes::select(Path::new("/dev"), Path::new(KERNEL_MODULE), visible, minor);
        if nodes.paths.is_empty() {
            return Err(DeviceMissing::Nodes);
        }
        Ok(Self {
            visible: nodes.visible,
            nodes: nodes.paths,
            shared_nodes: nodes.shared,
            library_folders: vec![driver],
        })
    }

    /// Adds a folder of libraries.
    #[must_use]
    pub fn with_libraries(mut self, folder: PathBuf) -> Self {
        if !self.library_folders.contains(&folder) {
            self.library_folders.push(folder);
        }
        self
    }

    /// Returns the environment variables of a process on this GPU. They disable caches that outlive a process.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let folders: Vec<String> =
            self.library_folders.iter().map(|folder| folder.to_string_lossy().into_owned()).collect();
        [
            ("CUDA_VISIBLE_DEVICES", self.visible.clone()),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
            ("CUDA_CACHE_DISABLE", "1".to_owned()),
            ("CUDA_MODULE_LOADING", "EAGER".to_owned()),
            ("LD_LIBRARY_PATH", folders.join(":")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Finds the folder from which this process loads the driver.
fn driver_folder() -> Result<PathBuf, DeviceMissing> {
    let mut reason = String::new();
    let installed = DRIVER_FOLDERS.iter().map(|folder| Path::new(folder).join(DRIVER_LIBRARY));
    for name in std::iter::once(PathBuf::from(DRIVER_LIBRARY)).chain(installed) {
        if name.is_absolute() && !name.exists() {
            continue;
        }
        match load(&name) {
            Ok(()) => {
                let folder = if name.is_absolute() { name.parent().map(Path::to_owned) } else { mapped_folder() };
                if let Some(folder) = folder {
                    return Ok(folder);
                }
                "it was loaded from an unknown folder".clone_into(&mut reason);
            }
            Err(error) if reason.is_empty() => reason = error,
            Err(_) => {}
        }
    }
    Err(DeviceMissing::Driver { reason })
}

/// Loads the driver's library and keeps it loaded. Loading it has no effect on the GPU.
fn load(name: &Path) -> Result<(), String> {
    // SAFETY: the driver's own library, which every CUDA program loads in this way. It is never unloaded.
    let library = unsafe { libloading::Library::new(name) }.map_err(|error| error.to_string())?;
    std::mem::forget(library);
    Ok(())
}

/// Finds the folder of the loaded driver in the memory map of this process.
fn mapped_folder() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        Path::new(path).file_name()?.to_str()?.starts_with("libcuda.so").then_some(path)
    })?;
    Path::new(path).parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> DeviceAccess {
        DeviceAccess {
            visible: "GPU-1".to_owned(),
            nodes: Vec::new(),
            shared_nodes: None,
            library_folders: vec!["/a".into()],
        }
    }

    #[test]
    fn a_process_sees_one_gpu_and_keeps_no_caches() {
        let variables = access().with_libraries("/b".into()).environment();
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("CUDA_DEVICE_MAX_CONNECTIONS"), None, "programs are timed with the driver's defaults");
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("GPU-1"));
        assert_eq!(value("LD_LIBRARY_PATH"), Some("/a:/b"));
        assert_eq!(value("CUDA_CACHE_DISABLE"), Some("1"));
    }
}
