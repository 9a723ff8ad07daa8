//! `nightshift import kernelbench`: files with a model of `PyTorch` become folders of tasks.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::task::{CandidateForm, MAX_TENSOR_BYTES, TaskProblem};
use nightshift_sandbox::process::{CancelFlag, JailHost};
use nightshift_toolchain::inspect::{InspectOptions, inspect};
use nightshift_toolchain::python::{self, Python};
use nightshift_worker::execute::jail_host_of;
use serde::Serialize;

use crate::args::{ImportKernelbench, Precision};
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::kernelbench::files::{self, ModelFile};
use crate::kernelbench::task::{self, ImportOptions};
use crate::output::{Output, printable};
use crate::present;

/// Maximum number of files that are inspected at once: each takes a process with `PyTorch` in it.
const MAX_AT_ONCE: usize = 4;

pub(super) async fn run(context: &Context, args: ImportKernelbench) -> Result<ExitCode> {
    let output = context.output;
    let config = crate::compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let cancel = context.cancel_on_interrupt();
    let import = move || {
        let configured = args.python.as_deref().or(config.python.as_deref());
        let models = args.hf_home.as_deref().or(config.hf_home.as_deref());
        let python = python::find(configured, &config.search_path, &cancel)
            .and_then(|python| models.into_iter().try_fold(python, Python::with_models))
            .map_err(|error| Failure::new(error.code(), error.to_string()))?;
        let host = jail_host_of(&config.executable, &config.cache_dir);
        let found = files::find(&args.source, &args.levels, &args.tasks, &cancel)?;
        let importer = Importer { wish: wish(&args, found.origin.clone()), args, python, host, output, cancel };
        let rows = importer.import_all(&found.files);
        if importer.cancel.is_cancelled() {
            let written = rows.iter().filter(|row| row.folder.is_some()).count();
            let message = format!("stopped: {written} of {} imported", present::count(found.files.len(), "file"));
            return Err(Failure::new(INTERRUPTED, message)
                .hint("folders that were written stay; give the same command again for the others"));
        }
        Ok(rows)
    };
    let rows = tokio::task::spawn_blocking(import)
        .await
        .map_err(|error| Failure::new("internal.import", format!("the import broke down: {error}")))??;
    report(output, &rows)
}

fn wish(args: &ImportKernelbench, origin: Option<String>) -> ImportOptions {
    ImportOptions {
        target: args.target,
        form: if args.torch_form() { CandidateForm::Torch } else { CandidateForm::Native },
        half: args.precision != Precision::Fp32,
        training: !args.eval,
        origin,
    }
}

/// What became of one file.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// The file.
    file: String,
    /// The task's name.
    task: String,
    /// Its folder, when it was written.
    folder: Option<PathBuf>,
    /// Bytes of all tensors of a call.
    bytes: Option<f64>,
    /// How many operators a call has.
    operators: Option<usize>,
    /// Known problems.
    problems: Vec<TaskProblem>,
    /// Why it was refused.
    refused: Option<Refusal>,
}

#[derive(Debug, Clone, Serialize)]
struct Refusal {
    code: String,
    message: String,
    line: Option<u32>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { code: failure.error.code, message: failure.error.message, line: None }
    }
}

struct Importer {
    args: ImportKernelbench,
    wish: ImportOptions,
    python: Python,
    host: JailHost,
    output: Output,
    cancel: CancelFlag,
}

impl Importer {
    /// Inspects files side by side. What is wrong with one of them does not concern the others.
    fn import_all(&self, files: &[ModelFile]) -> Vec<Row> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let earlier = |number: usize, file: &ModelFile| {
            files.iter().take(number).find(|other| task::name(other) == task::name(file))
        };
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_AT_ONCE).min(files.len());
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some((number, file)) = next_of(&next, files).filter(|_| !self.cancel.is_cancelled()) {
                        let row = self.import(file, earlier(number, file));
                        // What a signal ended says nothing about the file.
                        if row.refused.as_ref().is_some_and(|refused| refused.code == INTERRUPTED) {
                            break;
                        }
                        if files.len() > 1 {
                            let state = row.refused.as_ref().map_or("ready", |refused| refused.code.as_str());
                            self.output.note(&format!("{}: {state}", row.file));
                        }
                        done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, row));
                    }
                });
            }
        });
        let mut rows = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        rows.sort_by_key(|(number, _)| *number);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn import(&self, file: &ModelFile, namesake: Option<&ModelFile>) -> Row {
        let mut row = Row {
            file: file.label(),
            task: task::name(file),
            folder: None,
            bytes: None,
            operators: None,
            problems: Vec::new(),
            refused: None,
        };
        if let Err(refused) = self.try_to_import(file, namesake, &mut row) {
            row.refused = Some(refused);
        }
        row
    }

    fn try_to_import(
        &self,
        file: &ModelFile,
        namesake: Option<&ModelFile>,
        row: &mut Row,
    ) -> std::result::Result<(), Refusal> {
        let folder = self.args.out.join(&row.task);
        if let Some(namesake) = namesake {
            let message = format!(
                "its task would have the name of that of `{}`: rename the file, or import it by itself with another --out",
                namesake.label()
            );
            return Err(Failure::new("usage.file_exists", message).into());
        }
        if folder.exists() && !self.args.force {
            let message = format!("the folder `{}` exists already: give --force to write it anew", folder.display());
            return Err(Failure::new("usage.file_exists", message).into());
        }
        let source = files::read(&file.path)?;
        let scratch = tempfile::tempdir().map_err(|error| disk(&std::env::temp_dir(), &error))?;
        let scratch_path = scratch.path().canonicalize().map_err(|error| disk(scratch.path(), &error))?;
        let options = InspectOptions {
            precision: self.args.precision.as_str().to_owned(),
            training: self.wish.training,
            max_bytes: MAX_TENSOR_BYTES,
            wall_ms: u64::from(self.args.timeout_s).saturating_mul(1_000),
        };
        let inspected = inspect(&self.host, &self.python, &source, &options, &scratch_path, &self.cancel);
        if self.cancel.is_cancelled() && !matches!(inspected, Ok(Ok(_))) {
            return Err(Failure::new(INTERRUPTED, "stopped before it was looked at").into());
        }
        let found = inspected
            .map_err(|error| Failure::new("internal.import", error.to_string()))?
            .map_err(|error| Refusal { code: error.code.to_owned(), message: error.message, line: error.line })?;
        let spec = task::spec(file, &found, &self.wish);
        row.bytes = Some(found.bytes);
        row.operators = Some(found.operators.len());
        row.problems = spec.torch.as_ref().map(|torch| torch.problems.clone()).unwrap_or_default();
        let text = task::text(&spec, file, &found, &self.wish)?;
        task::write(&folder, &text, &source).map_err(|error| disk(&folder, &error))?;
        row.folder = Some(folder);
        Ok(())
    }
}

fn next_of<'f>(next: &AtomicUsize, files: &'f [ModelFile]) -> Option<(usize, &'f ModelFile)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    files.get(number).map(|file| (number, file))
}

fn disk(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("task.not_written", format!("`{}` cannot be written: {error}", path.display()))
}

/// Says what became of the files. It failed when none of them became a task.
fn report(output: Output, rows: &[Row]) -> Result<ExitCode> {
    if output.is_json() {
        output.json(rows)?;
    } else if rows.len() > 1 || failure_of(rows).is_none() {
        output.text(&table(output, rows))?;
        let written = rows.iter().filter(|row| row.folder.is_some()).count();
        let flagged = rows.iter().filter(|row| row.folder.is_some() && !row.problems.is_empty()).count();
        output.text(&format!(
            "{written} of {} imported, {flagged} of them with known problems; {} refused",
            present::count(rows.len(), "file"),
            rows.len() - written
        ))?;
    }
    failure_of(rows).map_or(Ok(ExitCode::Ok), Err)
}

fn table(output: Output, rows: &[Row]) -> String {
    let mut table = output.table(&["file", "task", "tensors", "operators", "state"]);
    for row in rows {
        table.add_row([
            printable(&row.file),
            printable(&row.task),
            row.bytes.map_or_else(|| present::NONE.to_owned(), mebibytes),
            row.operators.map_or_else(|| present::NONE.to_owned(), |count| count.to_string()),
            printable(&state(row)),
        ]);
    }
    table.to_string()
}

/// What the command fails with: why the first file was refused, when none became a task.
fn failure_of(rows: &[Row]) -> Option<Failure> {
    let (file, refused) = rows.iter().find_map(|row| Some((&row.file, row.refused.as_ref()?)))?;
    if rows.iter().any(|row| row.folder.is_some()) {
        return None;
    }
    let line = refused.line.map_or_else(String::new, |line| format!(":{line}"));
    let of_all = if rows.len() > 1 { format!("none of {} files became a task; ", rows.len()) } else { String::new() };
    Some(Failure::new(&refused.code, format!("{of_all}{file}{line}: {}", refused.message)))
}

fn state(row: &Row) -> String {
    if let Some(refused) = &row.refused {
        let line = refused.line.map_or_else(String::new, |line| format!(" (line {line})"));
        return format!("{}: {}{line}", refused.code, refused.message);
    }
    if row.problems.is_empty() {
        return "ready".to_owned();
    }
    let problems: Vec<String> =
        row.problems.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect();
    format!("ready, but {}", problems.join("; "))
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}
