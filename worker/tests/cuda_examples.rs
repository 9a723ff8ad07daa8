//! Every program of the CUDA examples, references and replies, built with the real nvcc as a worker builds it: those that
//! are meant to compile do, the others do not. Needs no GPU. Without nvcc the programs are reported as skipped;
//! `cargo xtask test --install` brings one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/nvcc.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::task::{CudaLibrary, Target, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::SandboxChoice;
use nightshift_toolchain::build::Role;
use nightshift_toolchain::nvcc::Nvcc;

use support::Bench;

/// Replies whose program does not compile, by task: the scripts go on with its repair.
const NOT_COMPILING: [(&str, &str); 2] =
    [("cuda_layernorm_gelu", "subtask1.attempt1.write_code"), ("cuda_sum_reduction", "subtask1.attempt2.write_code")];

/// One program.
#[derive(Debug, Clone)]
struct Program {
    task: String,
    /// `reference`, `truth`, or the reply's name.
    name: String,
    source: String,
    role: Role,
    libraries: BTreeSet<CudaLibrary>,
}

impl Program {
    fn compiles(&self) -> bool {
        !NOT_COMPILING.contains(&(&self.task, &self.name))
    }

    /// A library that the program uses and whose headers are not installed.
    fn missing(&self, nvcc: &Nvcc) -> Option<CudaLibrary> {
        let uses = |library: &CudaLibrary| match library {
            CudaLibrary::Cublas => self.source.contains("cublas_v2.h"),
            CudaLibrary::CublasLt => self.source.contains("cublasLt.h"),
            CudaLibrary::Cudnn => self.source.contains("cudnn"),
            CudaLibrary::Cccl => self.source.contains("<cub/"),
            CudaLibrary::Cutlass => self.source.contains("<cutlass/"),
        };
        self.libraries.iter().copied().find(|library| uses(library) && !nvcc.has(*library))
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// The programs of all tasks for the `cuda` target.
fn programs() -> Vec<Program> {
    let mut found = Vec::new();
    for folder in sorted(&examples()) {
        let Ok(text) = fs::read_to_string(folder.join("task.toml")) else { continue };
        let spec: TaskSpec = toml::from_str(&text).unwrap();
        if spec.target != Target::Cuda {
            continue;
        }
        let program = |name: &str, role, source| Program {
            task: spec.name.clone(),
            name: name.to_owned(),
            source,
            role,
            libraries: spec.libraries.clone(),
        };
        let reference = fs::read_to_string(folder.join(&spec.reference)).unwrap();
        found.push(program("reference", Role::Reference, reference.clone()));
        found.push(program("truth", Role::Truth, reference));
        for reply in sorted(&folder.join("replies")) {
            let name = reply.file_stem().unwrap().to_str().unwrap().to_owned();
            if let Some(source) = code(&fs::read_to_string(&reply).unwrap()) {
                found.push(program(&name, Role::Candidate, source));
            }
        }
    }
    found
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The program in a reply.
fn code(reply: &str) -> Option<String> {
    let (_, rest) = reply.split_once("\n```cpp\n")?;
    rest.split_once("\n```").map(|(code, _)| format!("{code}\n"))
}

fn builds(program: &Program, nvcc: &Arc<Nvcc>) {
    let libraries: Vec<CudaLibrary> = program.libraries.iter().copied().collect();
    let report: BuildReport = Bench::new(nvcc).try_build(&program.source, program.role, &libraries).unwrap();
    let errors: Vec<String> = report
        .messages
        .iter()
        .filter(|message| message.severity == "error")
        .map(|message| format!("{}:{}: {}", message.file, message.line, message.message))
        .collect();
    if !program.compiles() {
        assert!(report.library.is_none() && !errors.is_empty(), "a program that should not compile does");
        return;
    }
    assert_eq!(report.end, ProcessEnd::Finished, "{errors:?}");
    assert!(report.library.is_some() && errors.is_empty(), "{errors:?}");
    let kernels = report.cuda.unwrap().kernels;
    let spilling: Vec<&str> =
        kernels.iter().filter(|kernel| kernel.spills()).map(|kernel| kernel.name.as_str()).collect();
    assert!(spilling.is_empty(), "these kernels keep registers in memory: {spilling:?}");
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let programs = programs();
    let tasks: BTreeSet<&str> = programs.iter().map(|program| program.task.as_str()).collect();
    assert!(tasks.len() >= 6, "{tasks:?}");
    let listed =
        |(task, name): &(&str, &str)| programs.iter().any(|program| (&*program.task, &*program.name) == (*task, *name));
    assert!(NOT_COMPILING.iter().all(listed), "a program that should not compile is not there");

    let scratch = tempfile::tempdir().unwrap();
    let found = support::find(&scratch.path().canonicalize().unwrap(), SandboxChoice::Best);
    if let Err(error) = &found {
        eprintln!("skipped: the programs of the CUDA examples: {error}");
    }
    // One that was installed has to work.
    let is_missing = found.is_err() && !support::install_folder().exists();
    let found = found.map(Arc::new).map_err(|error| error.to_string());
    let trials = programs.into_iter().map(|program| {
        let missing = found.as_ref().ok().and_then(|nvcc| program.missing(nvcc));
        if let Some(library) = missing {
            eprintln!("skipped: {}/{}: no headers of {}", program.task, program.name, library.as_str());
        }
        let found = found.clone();
        let trial = Trial::test(format!("{}/{}", program.task, program.name), move || {
            builds(&program, &found.map_err(Failed::from)?);
            Ok(())
        });
        trial.with_ignored_flag(is_missing || missing.is_some())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
