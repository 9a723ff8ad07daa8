//! What the tests with `PyTorch` have in common: which Python, files of programs, and the inspection of a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Arguments, Trial};
use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{ExecutionContext, Place};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::task::{MAX_TENSOR_BYTES, TaskSpec};
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use nightshift_toolchain::Host;
use nightshift_toolchain::inspect::{InspectOptions, Inspection, ModelError, inspect};
use nightshift_toolchain::python::{Python, find};

use crate::workshop::{self, Workshop};

static PYTHON: LazyLock<Result<Python, String>> = LazyLock::new(|| {
    let named = std::env::var_os("NIGHTSHIFT_TEST_PYTHON").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    find(named.as_deref(), &path, &CancelFlag::default()).map_err(|error| error.to_string())
});

/// A folder with programs, and where they run.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) shop: Workshop,
    pub(crate) python: Python,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(python: &Python) -> Self {
        let host = Host { python: Some(Arc::new(python.clone().into())), ..workshop::host(SandboxChoice::Best) };
        Self { host, shop: Workshop::new(), python: python.clone(), folder: tempfile::tempdir().unwrap() }
    }

    /// The same, whose models find what lies in this folder.
    pub(crate) fn with_models(&self, folder: &Path) -> Self {
        Self::new(&self.python.clone().with_models(folder).unwrap())
    }

    /// A file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().canonicalize().unwrap().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Evaluates something on the host.
    pub(crate) fn evaluate<T>(&self, work: impl FnOnce(&ExecutionContext<'_>) -> T) -> T {
        let (cancel, memory) = (CancelFlag::default(), HostMemory::new(workshop::machine().last_level_cache_bytes));
        work(&ExecutionContext { host: &self.host, cancel: &cancel, place: Place::Host(&memory) })
    }

    /// Checks a program against a model, which is the truth as well.
    pub(crate) fn check(&self, candidate: &Path, reference: &Path, spec: &TaskSpec) -> CheckReport {
        let (reference, truth) = (reference.to_owned(), reference.to_owned());
        let libraries = Libraries { candidate: candidate.to_owned(), reference, truth };
        self.evaluate(|context| check(context, spec, &libraries, false, &mut SecretSeeds::fixed(7))).unwrap()
    }

    pub(crate) fn inspect(&self, source: &str) -> Result<Inspection, ModelError> {
        self.inspect_within(source, 120_000)
    }

    pub(crate) fn inspect_within(&self, source: &str, wall_ms: u64) -> Result<Inspection, ModelError> {
        let options =
            InspectOptions { precision: "fp32".to_owned(), training: true, max_bytes: MAX_TENSOR_BYTES, wall_ms };
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path().canonicalize().unwrap();
        inspect(&self.host.jail, &self.python, source, &options, &scratch, &CancelFlag::default()).unwrap()
    }
}

/// A test with `PyTorch`, with its name.
pub(crate) type TorchTest = (&'static str, fn(&Bench));

/// Runs the tests of a file, one after the other. Where there is no `PyTorch` they are reported as skipped, and why is said
/// once.
#[expect(clippy::print_stdout, reason = "it says what it skips")]
pub(crate) fn run_all<const N: usize>(tests: [TorchTest; N]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    if let Err(reason) = &*PYTHON {
        println!("skipped, all tests with PyTorch: {reason}");
    }
    let trials = tests.map(|(name, test)| {
        let run = move || {
            if let Ok(python) = &*PYTHON {
                test(&Bench::new(python));
            }
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(PYTHON.is_err())
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
