//! `nightshift import kernelbench-results`: what others found out about programs, and their programs as tasks.

use std::path::Path;

use nightshift_protocol::error::ExitCode;
use serde::Serialize;

use crate::args::ImportKernelbenchResults;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::kernelbench::results::figures::{self, Figures};
use crate::kernelbench::results::times::{self, Times};
use crate::kernelbench::results::{self, LeftOut, OtherRun};
use crate::kernelbench::scripted::{self, ImportedTasks, Written};
use crate::output::{Output, printable};
use crate::present;

/// Maximum number of things that were left out which a text names; JSON names all.
const MAX_NAMED: usize = 20;

/// Maximum number of numbers of tasks in one line.
const MAX_NUMBERS: usize = 40;

pub(super) async fn run(context: &Context, args: ImportKernelbenchResults) -> Result<ExitCode> {
    let output = context.output;
    let found = tokio::task::spawn_blocking(move || import(&args))
        .await
        .map_err(|error| Failure::new("internal.import", format!("the import broke down: {error}")))??;
    found.report(output)
}

/// What was found and written.
#[derive(Debug, Default, Serialize)]
struct Found {
    runs: Vec<Figures>,
    baseline: Option<Baseline>,
    /// Folders that were written; none when none were asked for.
    tasks: Option<Vec<Written>>,
    left_out: Vec<FromRun>,
    /// Why the first run was refused, or the first task was not written.
    #[serde(skip)]
    refused: Option<LeftOut>,
}

#[derive(Debug, Serialize)]
struct Baseline {
    file: String,
    hardware: Vec<String>,
    tasks: usize,
}

/// Something that was left out, and of which run it is; none for what belongs to none.
#[derive(Debug, Serialize)]
struct FromRun {
    run: Option<String>,
    #[serde(flatten)]
    left_out: LeftOut,
}

fn import(args: &ImportKernelbenchResults) -> Result<Found> {
    let folders = results::find(&args.path)?;
    let times = args.baseline.as_deref().map(times::read).transpose()?;
    let stock = args.tasks.as_deref().map(scripted::stock).transpose()?;
    let mut found = Found {
        baseline: times.as_ref().map(|times| Baseline {
            file: times.file.clone(),
            hardware: times.hardware.iter().cloned().collect(),
            tasks: times.mean_ms.len(),
        }),
        tasks: stock.as_ref().map(|_| Vec::new()),
        ..Found::default()
    };
    found.leave_out(None, times.iter().flat_map(|times| times.left_out.clone()));
    found.leave_out(None, stock.iter().flat_map(|stock| stock.left_out.clone()));
    let alone = folders.len() == 1;
    for folder in &folders {
        match results::read(folder, args.level) {
            Ok(run) => found.take(args, &run, times.as_ref(), stock.as_ref(), alone)?,
            Err(failure) if alone => return Err(failure),
            // What is wrong with one run does not concern the others.
            Err(Failure { error, .. }) => {
                let what = folder.display().to_string();
                let left_out = LeftOut::new(what, error.code, error.message);
                found.refused.get_or_insert_with(|| left_out.clone());
                found.leave_out(None, [left_out]);
            }
        }
    }
    Ok(found)
}

impl Found {
    fn leave_out(&mut self, run: Option<&str>, left_out: impl IntoIterator<Item = LeftOut>) {
        let from_run = |left_out| FromRun { run: run.map(str::to_owned), left_out };
        self.left_out.extend(left_out.into_iter().map(from_run));
    }

    fn take(
        &mut self,
        args: &ImportKernelbenchResults,
        run: &OtherRun,
        times: Option<&Times>,
        stock: Option<&ImportedTasks>,
        alone: bool,
    ) -> Result<()> {
        self.runs.push(figures::of(run, times));
        self.leave_out(Some(&run.name), run.left_out.iter().cloned());
        let (Some(stock), Some(out), Some(tasks)) = (stock, &args.out, &mut self.tasks) else { return Ok(()) };
        // Runs have programs of the same tasks.
        let out = if alone { out.clone() } else { out.join(Path::new(&run.name)) };
        let (written, left_out) = scripted::write_run(run, stock, times, &out, args.force)?;
        tasks.extend(written);
        if let Some(first) = left_out.first() {
            self.refused.get_or_insert_with(|| first.clone());
        }
        self.leave_out(Some(&run.name), left_out);
        Ok(())
    }

    /// Says what was found. It failed when nothing could be read, or no task was written where tasks were asked for.
    fn report(&self, output: Output) -> Result<ExitCode> {
        if output.is_json() {
            output.json(self)?;
        } else {
            for run in &self.runs {
                output.text(&run_text(run))?;
            }
            for written in self.tasks.iter().flatten() {
                output.text(&format!(
                    "{}: {}",
                    printable(&written.folder.display().to_string()),
                    present::count(written.programs, "program")
                ))?;
            }
            self.note_left_out(output);
        }
        self.failure().map_or(Ok(ExitCode::Ok), Err)
    }

    fn failure(&self) -> Option<Failure> {
        let what = if self.runs.is_empty() {
            "no run could be read"
        } else if self.tasks.as_ref().is_some_and(Vec::is_empty) {
            "no task was written"
        } else {
            return None;
        };
        // A run that has results and no program is no reason that could be named otherwise.
        Some(match &self.refused {
            Some(LeftOut { what: refused, code, message }) => {
                Failure::new(code, format!("{what}; {refused}: {message}"))
            }
            None => Failure::new("results.no_program", format!("{what}: there is no program for one")),
        })
    }

    fn note_left_out(&self, output: Output) {
        if !self.left_out.is_empty() {
            output.note(&format!("left out ({}):", self.left_out.len()));
        }
        for FromRun { run, left_out: LeftOut { what, code, message } } in self.left_out.iter().take(MAX_NAMED) {
            let run = run.as_ref().map_or_else(String::new, |run| format!("{run}: "));
            output.note(&printable(&format!("  {run}{what}: {code}: {message}")));
        }
        let more = self.left_out.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            output.note(&format!("  and {more} more, which --json names"));
        }
    }
}

/// What a run came to, for people.
fn run_text(run: &Figures) -> String {
    let Figures { level, tasks, evaluated, results, programs, compiled, correct, .. } = run;
    let mut lines = vec![format!(
        "{}: level {level}, {}, {} with a result; of their programs 0, {compiled} compiled and {correct} correct; {} \
         and {} in all",
        printable(&run.run),
        present::count(*tasks, "task"),
        evaluated,
        present::count(*results, "result"),
        present::count(*programs, "program"),
    )];
    match run.published() {
        Some(fast) => lines.push(format!("  {}", fast.line())),
        None => lines.push(
            "  no fast_p without times of the references: name a file of results/timing/HARDWARE/ with --baseline"
                .to_owned(),
        ),
    }
    if !run.without_baseline.is_empty() {
        lines.push(format!(
            "  without a time of the reference, and so not faster: {}; KernelBench's own script leaves them out of the count",
            numbers(&run.without_baseline)
        ));
    }
    if !run.without_time.is_empty() {
        lines.push(format!("  correct, not timed, and so not faster: {}", numbers(&run.without_time)));
    }
    lines.join("\n")
}

/// `3 tasks: 4, 7, 9`.
fn numbers(problems: &[u32]) -> String {
    let mut named: Vec<String> = problems.iter().take(MAX_NUMBERS).map(u32::to_string).collect();
    if problems.len() > MAX_NUMBERS {
        named.push("...".to_owned());
    }
    format!("{}: {}", present::count(problems.len(), "task"), named.join(", "))
}
