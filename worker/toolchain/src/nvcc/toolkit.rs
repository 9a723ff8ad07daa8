//! A CUDA toolkit's folders, as its installers lay them out: NVIDIA's own, packages of Python, Linux distributions.

use std::path::{Path, PathBuf};

use nightshift_protocol::task::CudaLibrary;

/// Version of cuDNN that is assumed where its header does not tell.
const CUDNN_MAJOR: u32 = 9;

/// A CUDA toolkit on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    /// Its folder.
    pub root: PathBuf,
    /// Version, for example 13 and 0.
    pub release: (u32, u32),
    /// Where its programs lie.
    pub program_folder: PathBuf,
    /// Where its libraries lie, and those that are installed beside it.
    pub library_folders: Vec<PathBuf>,
    include_folders: Vec<PathBuf>,
}

impl Toolkit {
    /// The toolkit that a compiler belongs to.
    #[must_use]
    pub fn of(compiler: &Path, release: (u32, u32)) -> Self {
        let program_folder = compiler.parent().unwrap_or(Path::new("/")).to_path_buf();
        let root = program_folder.parent().unwrap_or(Path::new("/")).to_path_buf();
        // Packages of Python lie beside each other: `nvidia/cu13`, `nvidia/cudnn`, and above them other projects.
        let beside = root.parent().filter(|folder| folder.ends_with("nvidia"));
        let packages = beside.and_then(Path::parent);
        let exists = |folders: Vec<PathBuf>| folders.into_iter().filter(|folder| folder.is_dir()).collect::<Vec<_>>();
        let mut libraries = vec![root.join("lib64"), root.join("lib"), root.join("targets/x86_64-linux/lib")];
        let mut includes =
            vec![root.join("include"), root.join("include/cccl"), root.join("targets/x86_64-linux/include")];
        if let Some(nvidia) = beside {
            libraries.push(nvidia.join("cudnn/lib"));
            includes.push(nvidia.join("cudnn/include"));
        }
        if let Some(packages) = packages {
            includes.push(packages.join("cutlass_library/source/include"));
        }
        for folder in ["/usr/local/cutlass/include", "/opt/cutlass/include", "/usr/local/include", "/usr/include"] {
            includes.push(PathBuf::from(folder));
        }
        Self { library_folders: exists(libraries), include_folders: exists(includes), program_folder, root, release }
    }

    /// The folder with the headers of a library; none when they are not installed.
    #[must_use]
    pub fn include_folder(&self, library: CudaLibrary) -> Option<&Path> {
        let header = match library {
            CudaLibrary::Cublas => "cublas_v2.h",
            CudaLibrary::CublasLt => "cublasLt.h",
            CudaLibrary::Cudnn => "cudnn.h",
            CudaLibrary::Cccl => "cub/cub.cuh",
            CudaLibrary::Cutlass => "cutlass/cutlass.h",
        };
        self.include_folders.iter().find(|folder| folder.join(header).is_file()).map(PathBuf::as_path)
    }

    /// The folder with the runtime that is linked into libraries, when it is in one of the toolkit's.
    #[must_use]
    pub fn runtime_folder(&self) -> Option<&Path> {
        let has_runtime = |folder: &&PathBuf| folder.join("libcudart_static.a").is_file();
        self.library_folders.iter().find(has_runtime).map(PathBuf::as_path)
    }

    /// Folders outside of the toolkit's own that hold headers or libraries and do not belong to the system.
    #[must_use]
    pub fn folders_beside(&self) -> Vec<PathBuf> {
        let folders = self.include_folders.iter().chain(&self.library_folders);
        let is_beside = |folder: &&PathBuf| !folder.starts_with(&self.root) && !folder.starts_with("/usr");
        folders.filter(is_beside).cloned().collect()
    }

    /// Major version of cuDNN, which is part of its library's name.
    #[must_use]
    pub fn cudnn_major(&self) -> u32 {
        let read = || {
            let header = self.include_folder(CudaLibrary::Cudnn)?.join("cudnn_version.h");
            let text = std::fs::read_to_string(header).ok()?;
            let line = text.lines().find(|line| line.starts_with("#define CUDNN_MAJOR"))?;
            line.split_whitespace().nth(2)?.parse().ok()
        };
        read().unwrap_or(CUDNN_MAJOR)
    }
}

/// The version in a report of `nvcc --version`, in full and as numbers: `13.0, V13.0.88`, 13 and 0.
#[must_use]
pub(super) fn release_in(report: &str) -> Option<(String, (u32, u32))> {
    let (_, release) = report.lines().find_map(|line| line.split_once("release "))?;
    let release = release.trim();
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((release.to_owned(), (major.parse().ok()?, minor.parse().ok()?)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn file(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_version_is_read_from_the_report() {
        let report = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n\
                      Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";
        assert_eq!(release_in(report), Some(("13.0, V13.0.88".to_owned(), (13, 0))));
        assert_eq!(release_in("g++ (Debian 12.2.0) 12.2.0"), None);
        assert_eq!(release_in("release thirteen"), None);
    }

    #[test]
    fn packages_of_python_that_lie_beside_a_toolkit_are_found() {
        let packages = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("nvidia/cu13/bin/nvcc", ""),
            ("nvidia/cu13/lib/libcudart_static.a", ""),
            ("nvidia/cu13/include/cublasLt.h", ""),
            ("nvidia/cu13/include/cccl/cub/cub.cuh", ""),
            ("nvidia/cudnn/include/cudnn.h", ""),
            ("nvidia/cudnn/include/cudnn_version.h", "#define CUDNN_MAJOR 10\n"),
            ("nvidia/cudnn/lib/libcudnn.so.10", ""),
            ("cutlass_library/source/include/cutlass/cutlass.h", ""),
        ] {
            file(packages.path(), path, text);
        }
        let toolkit = Toolkit::of(&packages.path().join("nvidia/cu13/bin/nvcc"), (13, 0));
        assert_eq!(toolkit.runtime_folder(), Some(packages.path().join("nvidia/cu13/lib").as_path()));
        assert!(toolkit.library_folders.contains(&packages.path().join("nvidia/cudnn/lib")));
        assert_eq!(toolkit.cudnn_major(), 10);
        let folder = |library| toolkit.include_folder(library).map(Path::to_path_buf);
        assert_eq!(folder(CudaLibrary::Cccl), Some(packages.path().join("nvidia/cu13/include/cccl")));
        assert_eq!(folder(CudaLibrary::Cutlass), Some(packages.path().join("cutlass_library/source/include")));
        assert!(folder(CudaLibrary::CublasLt).is_some() && folder(CudaLibrary::Cudnn).is_some());
    }

    #[test]
    fn what_is_not_installed_has_no_headers() {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), "bin/nvcc", "");
        let toolkit = Toolkit::of(&folder.path().join("bin/nvcc"), (12, 9));
        assert_eq!(toolkit.runtime_folder(), None);
        assert!(toolkit.library_folders.is_empty());
    }
}
