//! Which device nodes a process on one GPU needs.

use std::path::{Path, PathBuf};

/// Control nodes that every process on a GPU opens. WSL has one node for everything.
const CONTROL_NODES: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dxg"];

/// Folder of the nodes of MIG instances.
const INSTANCE_NODES: &str = "nvidia-caps";

/// How the names of MIG instances begin.
const INSTANCE_PREFIX: &str = "MIG-";

/// The nodes for one GPU.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nodes {
    /// Paths of the nodes, sorted. Empty where there is no GPU.
    pub(super) paths: Vec<PathBuf>,
    /// Why nodes of other GPUs are among them; none when they are not.
    pub(super) shared: Option<String>,
    /// The name of the GPU among those whose nodes these are. Numbers change where nodes are missing.
    pub(super) visible: String,
}

/// A GPU in the files of the kernel module.
#[derive(Debug)]
struct Gpu {
    bus_id: String,
    uuid: Option<String>,
    minor: u32,
}

/// Selects the nodes for the GPU that is named by its UUID or by its number in the order of the bus.
///
/// `dev` and `driver` are the folders of device nodes and of the kernel module's files. `minor` is the minor number that
/// the management library reports; it serves where the files do not tell it.
pub(super) fn select(dev: &Path, driver: &Path, visible: &str, minor: Option<u32>) -> Nodes {
    let gpus = gpu_nodes(dev);
    let control = CONTROL_NODES.iter().map(|name| dev.join(name)).filter(|path| path.exists());
    let mut paths: Vec<PathBuf> = control.collect();
    if gpus.is_empty() {
        let has_shared_node = dev.join("dxg").exists();
        let shared = has_shared_node.then(|| "WSL has one device node for all GPUs".to_owned());
        let paths = if has_shared_node { paths } else { Vec::new() };
        return Nodes { paths, shared, visible: visible.to_owned() };
    }
    let is_instance = visible.starts_with(INSTANCE_PREFIX);
    let mut name = visible.to_owned();
    let shared = match own_node(dev, driver, visible, minor) {
        Ok((node, own_name)) => {
            paths.push(node);
            name = own_name;
            None
        }
        // One GPU cannot be confused with another one.
        Err(_) if gpus.len() == 1 => {
            paths.extend(gpus);
            None
        }
        Err(reason) => {
            paths.extend(gpus);
            Some(reason)
        }
    };
    if is_instance {
        paths.extend(entries(&dev.join(INSTANCE_NODES)));
    }
    paths.sort();
    Nodes { paths, shared, visible: name }
}

/// Finds the node of the GPU and its name where no other GPU has a node, or the reason why they are not known.
fn own_node(dev: &Path, driver: &Path, visible: &str, minor: Option<u32>) -> Result<(PathBuf, String), String> {
    let mut gpus = described_gpus(driver);
    gpus.retain(|gpu| gpu_node(dev, gpu.minor).exists());
    gpus.sort_by(|left, right| left.bus_id.cmp(&right.bus_id));
    let number = visible.parse::<usize>().ok();
    let found = match number {
        Some(number) => gpus.get(number),
        None => gpus.iter().find(|gpu| gpu.uuid.as_deref() == Some(visible)),
    };
    let found_minor = found.map(|gpu| gpu.minor).or(minor).ok_or_else(|| {
        format!("{} does not name the minor number of {visible}", driver.join("gpus/*/information").display())
    })?;
    let node = gpu_node(dev, found_minor);
    if !node.exists() {
        return Err(format!("{} does not exist", node.display()));
    }
    let uuid = found.and_then(|gpu| gpu.uuid.clone()).filter(|uuid| !uuid.contains('?'));
    let name = match number {
        Some(_) => uuid.unwrap_or_else(|| "0".to_owned()),
        None => visible.to_owned(),
    };
    Ok((node, name))
}

/// Reads the GPUs that the kernel module describes.
fn described_gpus(driver: &Path) -> Vec<Gpu> {
    let read = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("information")).ok()?;
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let minor = field("Device Minor")?.parse().ok()?;
        let bus_id = folder.file_name()?.to_string_lossy().into_owned();
        Some(Gpu { bus_id, uuid: field("GPU UUID"), minor })
    };
    entries(&driver.join("gpus")).filter_map(read).collect()
}

fn gpu_node(dev: &Path, minor: u32) -> PathBuf {
    dev.join(format!("nvidia{minor}"))
}

/// Lists the nodes `nvidia0`, `nvidia1` and so on.
fn gpu_nodes(dev: &Path) -> Vec<PathBuf> {
    let is_gpu = |path: &PathBuf| {
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut nodes: Vec<PathBuf> = entries(dev).filter(is_gpu).collect();
    nodes.sort();
    nodes
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A machine with two GPUs whose minor numbers are not in the order of the bus.
    fn machine(gpus: &[(&str, &str, u32)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let dev = root.path().join("dev");
        std::fs::create_dir_all(dev.join(INSTANCE_NODES)).unwrap();
        let fixed =
            ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "null", "nvidia-caps/nvidia-cap1"];
        for name in fixed.iter().map(|name| (*name).to_owned()).chain(gpus.iter().map(|gpu| format!("nvidia{}", gpu.2)))
        {
            std::fs::write(dev.join(name), "").unwrap();
        }
        for (bus_id, uuid, minor) in gpus {
            let folder = root.path().join("driver/gpus").join(bus_id);
            std::fs::create_dir_all(&folder).unwrap();
            let text = format!(
                "Model: \t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {bus_id}\nDevice Minor: \t {minor}\n"
            );
            std::fs::write(folder.join("information"), text).unwrap();
        }
        root
    }

    const TWO: [(&str, &str, u32); 2] = [("0000:1b:00.0", "GPU-1111", 4), ("0000:2c:00.0", "GPU-2222", 0)];

    fn selected(root: &TempDir, visible: &str, minor: Option<u32>) -> (Vec<String>, Option<String>) {
        let dev = root.path().join("dev");
        let nodes = select(&dev, &root.path().join("driver"), visible, minor);
        let name = |path: &PathBuf| path.strip_prefix(&dev).unwrap().to_str().unwrap().to_owned();
        (nodes.paths.iter().map(name).collect(), nodes.shared)
    }

    #[test]
    fn a_gpu_gets_its_own_node_and_the_control_nodes() {
        let root = machine(&TWO);
        for (visible, node) in [("GPU-1111", "nvidia4"), ("GPU-2222", "nvidia0"), ("0", "nvidia4"), ("1", "nvidia0")] {
            let mut expected = ["nvidia-uvm", "nvidia-uvm-tools", node, "nvidiactl"];
            expected.sort_unstable();
            assert_eq!(selected(&root, visible, None), (expected.iter().map(ToString::to_string).collect(), None));
        }
    }

    #[test]
    fn a_gpu_that_is_named_by_its_number_is_the_only_one_under_its_uuid() {
        let name = |root: &TempDir| select(&root.path().join("dev"), &root.path().join("driver"), "1", None).visible;
        assert_eq!(name(&machine(&TWO)), "GPU-2222");
        let unknown = machine(&[TWO[0], ("0000:2c:00.0", "GPU-????????", 0)]);
        assert_eq!(name(&unknown), "0");
    }

    #[test]
    fn an_instance_gets_the_node_of_its_gpu_and_those_of_instances() {
        let root = machine(&TWO);
        let (names, shared) = selected(&root, "MIG-77", Some(4));
        let expected = ["nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidia-uvm-tools", "nvidia4", "nvidiactl"];
        assert_eq!((names.as_slice(), shared), (expected.map(str::to_owned).as_slice(), None));
    }

    #[test]
    fn an_unknown_gpu_gets_all_nodes_and_the_reason_is_reported() {
        let root = machine(&TWO);
        let (names, shared) = selected(&root, "GPU-3333", None);
        assert!(names.contains(&"nvidia0".to_owned()) && names.contains(&"nvidia4".to_owned()), "{names:?}");
        assert!(shared.unwrap().contains("GPU-3333"));
        let (_, shared) = selected(&root, "GPU-3333", Some(9));
        assert!(shared.unwrap().ends_with("nvidia9 does not exist"));
        std::fs::remove_dir_all(root.path().join("driver")).unwrap();
        assert_eq!(selected(&root, "GPU-1111", Some(4)).1, None, "the management library knows it");
        assert!(selected(&root, "0", None).1.is_some());
    }

    #[test]
    fn the_only_gpu_needs_no_description_and_no_gpu_has_no_nodes() {
        let root = machine(&[("0000:1b:00.0", "GPU-1111", 2)]);
        std::fs::remove_dir_all(root.path().join("driver")).unwrap();
        assert_eq!(selected(&root, "GPU-1111", None).1, None);
        assert_eq!(selected(&machine(&[]), "0", None), (Vec::new(), None));
    }
}
