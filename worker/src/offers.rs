//! What a machine offers: targets, slots, devices, tools and labels. Nothing is started to find out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::{DeviceOffer, MachineFacts, Offers};
use nightshift_protocol::needs::Tool;
use nightshift_protocol::task::Target;

use crate::lease::WorkerConfig;
use crate::toolchain::{is_program, system_folders};

/// Number of the machine itself as a device of the `cpu` target.
pub const CPU_DEVICE: u32 = 0;
/// Steps that share the machine as a device when no step has it alone.
pub const SHARED_STEPS: u32 = 2;
/// Folders in which toolkits install themselves: those in them whose name begins like this, and what is below each.
const TOOLKITS: [(&str, &str, &str); 4] = [
    ("/usr/local", "cuda", "bin"),
    ("/opt/nvidia", "cuda", "bin"),
    ("/opt/nvidia/nsight-systems", "", "bin"),
    ("/opt/nvidia/nsight-compute", "", ""),
];

/// What this machine offers.
pub(crate) fn offers(config: &WorkerConfig, machine: MachineFacts) -> Offers {
    let root = Path::new("/");
    Offers {
        targets: vec![Target::Cpu],
        cpu_slots: config.cpu_slots.max(1),
        devices: vec![DeviceOffer {
            index: CPU_DEVICE,
            target: Target::Cpu,
            name: machine.processor.clone(),
            uuid: None,
            compute_capability: None,
            memory_bytes: machine.memory_bytes,
            shared_slots: SHARED_STEPS,
        }],
        tools: tools(root, &config.search_path),
        labels: config.labels.clone(),
        machine,
    }
}

/// Tools below `root`: programs in the search path, in the system's folders and in those of CUDA.
fn tools(root: &Path, search_path: &[PathBuf]) -> BTreeSet<Tool> {
    let system = system_folders();
    let under_root = |folder: &PathBuf| root.join(folder.strip_prefix("/").unwrap_or(folder));
    let mut folders: Vec<PathBuf> = search_path.iter().chain(&system).map(under_root).collect();
    for (parent, prefix, below) in TOOLKITS {
        let begins = |name: &str| name.starts_with(prefix);
        folders.extend(named_folders(&under_root(&PathBuf::from(parent)), begins).map(|folder| folder.join(below)));
    }
    Tool::ALL.into_iter().filter(|tool| folders.iter().any(|folder| is_in(*tool, folder))).collect()
}

fn is_in(tool: Tool, folder: &Path) -> bool {
    let program = match tool {
        Tool::Nvcc => "nvcc",
        Tool::Nsys => "nsys",
        Tool::Ncu => "ncu",
        Tool::ComputeSanitizer => "compute-sanitizer",
        Tool::Torch => return has_torch(folder),
    };
    is_program(&folder.join(program))
}

/// Whether the Python whose programs lie in this folder has `PyTorch`: asking Python itself would take seconds.
fn has_torch(programs: &Path) -> bool {
    let Some(prefix) = programs.parent() else { return false };
    named_folders(&prefix.join("lib"), |name| name.starts_with("python3")).any(|python| {
        let packages = ["site-packages", "dist-packages"].map(|packages| python.join(packages));
        packages.iter().any(|packages| packages.join("torch/version.py").is_file())
    })
}

fn named_folders(parent: &Path, fits: impl Fn(&str) -> bool) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    entries.filter(move |entry| fits(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn machine(files: &[(&str, u32)]) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        for (path, mode) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
        root
    }

    #[test]
    fn tools_are_found_where_toolkits_and_people_put_them() {
        let root = machine(&[
            ("usr/local/cuda-13.0/bin/nvcc", 0o755),
            ("opt/nvidia/nsight-systems/2026.1/bin/nsys", 0o755),
            ("opt/nvidia/nsight-compute/2026.1/ncu", 0o755),
            ("home/night/venv/lib/python3.12/site-packages/torch/version.py", 0o644),
        ]);
        let path = [PathBuf::from("/home/night/venv/bin")];
        assert_eq!(tools(root.path(), &path), BTreeSet::from([Tool::Nvcc, Tool::Nsys, Tool::Ncu, Tool::Torch]));
        assert!(!tools(root.path(), &[]).contains(&Tool::Torch), "only the Python of the search path counts");
    }

    #[test]
    fn what_cannot_be_executed_is_no_tool() {
        let root = machine(&[("usr/bin/nvcc", 0o644), ("usr/bin/ncu/readme", 0o755)]);
        assert!(tools(root.path(), &[]).is_empty());
    }
}
