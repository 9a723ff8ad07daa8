//! The disassembler of the CUDA toolkit.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_protocol::cuda_build::SassCounts;
use nightshift_protocol::verdict::ProcessEnd;

use super::sass;
use crate::toolchain::{Run, is_program, readable_folders};
use nightshift_sandbox::process::{JailedCommand, Limits};

/// Longest listing that is read, in bytes.
const MAX_LISTING_BYTES: usize = 64 << 20;

const LIMITS: Limits = Limits {
    wall_ms: 30_000,
    cpu_s: 30,
    memory_bytes: 4 << 30,
    file_bytes: 1 << 20,
    processes: 16,
    output_bytes: MAX_LISTING_BYTES,
};

/// `nvdisasm`, or `cuobjdump`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disassembler {
    program: PathBuf,
    options: &'static [&'static str],
}

impl Disassembler {
    /// The first of them that one of these folders has.
    #[must_use]
    pub fn find(folders: &[PathBuf]) -> Option<Self> {
        // Code only, without the analysis of data flow, which nothing here reads and which takes its time.
        const PROGRAMS: [(&str, &[&str]); 2] = [("nvdisasm", &["-c", "-ndf"]), ("cuobjdump", &["-sass"])];
        PROGRAMS.iter().find_map(|(name, options)| {
            let program = folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path))?;
            Some(Self { program: program.canonicalize().unwrap_or(program), options })
        })
    }

    /// Its path.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Counts the instructions of each function in a cubin that lies in `scratch`; or why that did not work.
    pub fn count(&self, cubin: &Path, scratch: &Path, run: &Run<'_>) -> Result<BTreeMap<String, SassCounts>, String> {
        let command = JailedCommand {
            program: self.program.clone(),
            args: self.options.iter().map(OsString::from).chain([cubin.as_os_str().to_owned()]).collect(),
            read_only: readable_folders(&self.program),
            scratch: scratch.to_path_buf(),
            env: vec![("LC_ALL".to_owned(), "C".to_owned())],
            limits: LIMITS,
        };
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        match run(&command) {
            Ok(result) if result.end == ProcessEnd::Finished => {
                Ok(sass::count_in(&String::from_utf8_lossy(&result.stdout)))
            }
            Ok(result) => {
                let said = String::from_utf8_lossy(&result.stderr).lines().next().unwrap_or_default().trim().to_owned();
                Err(format!("{name} could not read the machine code: {} {said}", result.end.describe())
                    .trim()
                    .to_owned())
            }
            Err(error) => Err(format!("{name} could not be run: {error}")),
        }
    }
}
