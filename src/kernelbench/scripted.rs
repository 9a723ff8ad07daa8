//! Programs of others as the recorded replies of a task: `--model scripted` judges them one after the other, and no model
//! is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use nightshift_optimizer::reply::{MAX_SOURCE_BYTES, extract_program};
use nightshift_optimizer::strategy::MAX_ATTEMPTS;
use nightshift_optimizer::task_file::{
    MAX_REPLIES_BYTES, MAX_TASK_FILE_BYTES, REPLIES_FOLDER, REPLY_EXTENSION, TASK_FILE, load_folder, parse_spec,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::fence::fence_of;
use nightshift_protocol::task::{CandidateForm, TaskBundle, TaskGoal, TaskSpec};
use serde_json::json;

use super::claims::{CLAIMS_FILE, CLAIMS_SCHEMA, Claimed, Claims};
use super::layout::{Place, task_of};
use super::results::times::Times;
use super::results::{Claim, LeftOut, OtherRun, text};
use crate::failure::{Failure, Result};

/// Maximum number of folders that are looked at for tasks.
const MAX_FOLDERS: usize = 20_000;

/// Maximum number of operators that a plan names.
const MAX_SCOPE: usize = 64;

/// Room for the other replies of a task, in bytes.
const PLAN_BYTES: usize = 64 * 1024;

/// How a reply begins that gives a program of others: an export finds the number of the program there again.
const PROGRAM_OF: &str = "The program of `";

/// What follows on its file.
const AS_IT_IS: &str = ", as it is.";

/// A task that was imported.
#[derive(Debug)]
pub(crate) struct Task {
    folder: PathBuf,
    bundle: TaskBundle,
}

/// Imported tasks, by level and number.
#[derive(Debug)]
pub(crate) struct ImportedTasks {
    tasks: BTreeMap<(u32, u32), Task>,
    /// Folders that could not be used.
    pub(crate) left_out: Vec<LeftOut>,
}

/// Reads the folders of tasks in a folder.
pub(crate) fn stock(folder: &Path) -> Result<ImportedTasks> {
    let shown = folder.display();
    let unread = |error: std::io::Error| Failure::new("task.not_found", format!("`{shown}` cannot be read: {error}"));
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.join(TASK_FILE).exists() {
            folders.push(path);
        }
        if folders.len() > MAX_FOLDERS {
            return Err(Failure::new("task.too_large", format!("`{shown}` has more than {MAX_FOLDERS} tasks")));
        }
    }
    folders.sort();
    let mut stock = ImportedTasks { tasks: BTreeMap::new(), left_out: Vec::new() };
    for folder in folders {
        stock.take(folder);
    }
    if stock.tasks.is_empty() {
        let why =
            stock.left_out.first().map_or_else(String::new, |first| format!(" ({}: {})", first.what, first.message));
        let message = format!("`{shown}` holds no task that was imported from a level of KernelBench{why}");
        return Err(
            Failure::new("task.not_found", message).hint("`nightshift import kernelbench --out DIR` writes them")
        );
    }
    Ok(stock)
}

impl ImportedTasks {
    fn take(&mut self, folder: PathBuf) {
        let what = folder.display().to_string();
        let bundle = match load_folder(&folder) {
            Ok(loaded) => loaded.bundle,
            Err(error) => return self.left_out.push(LeftOut::new(what, error.code(), error.message())),
        };
        let file = bundle.spec.torch.as_ref().and_then(|torch| torch.file.as_deref());
        let Some((level, problem, _)) = file.and_then(task_of) else {
            let message = "it was not imported from a level of KernelBench";
            return self.left_out.push(LeftOut::new(what, "task.not_imported", message));
        };
        if let Some(known) = self.tasks.get(&(level, problem)) {
            let message = format!("`{}` is the same task of level {level}, and is taken", known.folder.display());
            return self.left_out.push(LeftOut::new(what, "results.duplicate_task", message));
        }
        self.tasks.insert((level, problem), Task { folder, bundle });
    }
}

/// A folder that was written.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Written {
    /// Run that the programs come from.
    pub(crate) run: String,
    /// Name of the task.
    pub(crate) task: String,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// How many programs it holds.
    pub(crate) programs: usize,
}

/// Writes a folder for each task that a run has programs of, and names what could not be written.
pub(crate) fn write_run(
    run: &OtherRun,
    stock: &ImportedTasks,
    times: Option<&Times>,
    out: &Path,
    force: bool,
) -> Result<(Vec<Written>, Vec<LeftOut>)> {
    let mut by_task: BTreeMap<u32, Vec<Program<'_>>> = BTreeMap::new();
    for (place, sample) in &run.samples {
        if let Some(file) = &sample.file {
            let claim = sample.claim.as_ref();
            by_task.entry(place.problem).or_default().push(Program { place: *place, file, claim });
        }
    }
    let (mut written, mut left_out) = (Vec::new(), Vec::new());
    for (problem, programs) in by_task {
        let what = format!("task {problem}");
        let Some(task) = stock.tasks.get(&(run.level, problem)) else {
            let message = format!("no task of the folder is number {problem} of level {}", run.level);
            left_out.push(LeftOut::new(what, "results.unknown_task", message));
            continue;
        };
        let folder = out.join(&task.bundle.spec.name);
        if folder.exists() && !force {
            let message = format!("`{}` exists already: give --force to write it anew", folder.display());
            left_out.push(LeftOut::new(what, "usage.file_exists", message));
            continue;
        }
        let replies = Replies::of(&programs, &mut left_out);
        if replies.programs.is_empty() {
            continue;
        }
        let claims = Claims {
            schema: CLAIMS_SCHEMA,
            task: task.bundle.spec.name.clone(),
            run: run.name.clone(),
            level: run.level,
            problem,
            reference_ms: times.and_then(|times| times.mean_ms.get(&(run.level, problem)).copied()),
            programs: replies.programs,
        };
        write(task, &claims, &replies.texts, &folder)?;
        let programs = claims.programs.len();
        written.push(Written { run: claims.run, task: claims.task, folder, programs });
    }
    Ok((written, left_out))
}

/// A program of a run.
struct Program<'r> {
    place: Place,
    file: &'r Path,
    claim: Option<&'r Claim>,
}

/// Replies that hold programs.
struct Replies {
    programs: Vec<Claimed>,
    texts: Vec<String>,
}

impl Replies {
    fn of(programs: &[Program<'_>], left_out: &mut Vec<LeftOut>) -> Self {
        let mut replies = Self { programs: Vec::new(), texts: Vec::new() };
        let mut bytes = PLAN_BYTES;
        for program in programs {
            let Program { place, claim, .. } = program;
            let (attempt, name) = (replies.programs.len().saturating_add(1), place.file_name());
            let Some(attempt) = u32::try_from(attempt).ok().filter(|attempt| *attempt <= MAX_ATTEMPTS) else {
                let message = format!("a run judges {MAX_ATTEMPTS} programs at most");
                left_out.push(LeftOut::new(name, "results.too_many_programs", message));
                continue;
            };
            let (text, source) = match reply(program) {
                Ok(reply) => reply,
                Err(unusable) => {
                    left_out.push(unusable);
                    continue;
                }
            };
            bytes = bytes.saturating_add(text.len());
            if bytes > MAX_REPLIES_BYTES {
                let message = format!("the programs of a task may take {MAX_REPLIES_BYTES} bytes together");
                left_out.push(LeftOut::new(name, "results.too_many_programs", message));
                continue;
            }
            let said = claim.map(|claim| claim.said.clone());
            replies.programs.push(Claimed { attempt, sample: place.sample, file: name, source, said });
            replies.texts.push(text);
        }
        replies
    }
}

/// A reply that holds the program of a file, and the hash of what is taken from it.
fn reply(of: &Program<'_>) -> std::result::Result<(String, ArtifactHash), LeftOut> {
    let Program { place, file, claim } = *of;
    let max_bytes = u64::try_from(MAX_SOURCE_BYTES).unwrap_or(u64::MAX);
    let unusable = |message: String| LeftOut::new(place.file_name(), "results.unusable_program", message);
    let program = text::read(file, max_bytes).map_err(|failure| unusable(failure.error.message))?;
    let end = if program.ends_with('\n') { "" } else { "\n" };
    let fence = fence_of(&program);
    let text = format!("{}\n\n{fence}python\n{program}{end}{fence}\n", introduction(place, claim));
    // What stands in a reply is read by rules: marks of reasoning or of edits inside of a program would change it.
    let taken = extract_program(&text, None, CandidateForm::Torch).map_err(|problem| unusable(problem.to_string()))?;
    if taken.strip_suffix(end).unwrap_or(&taken) != program {
        return Err(unusable(
            "it holds marks that a reply may not hold, and would be read as another program".to_owned(),
        ));
    }
    let hash = ArtifactHash::of(taken.as_bytes());
    Ok((text, hash))
}

/// Which program a recorded reply gives; none for replies that no import of results wrote.
pub(crate) fn place_of(reply: &str) -> Option<Place> {
    let (file_name, rest) = reply.strip_prefix(PROGRAM_OF)?.split_once('`')?;
    Place::of(file_name).filter(|_| rest.starts_with(AS_IT_IS))
}

fn introduction(place: Place, claim: Option<&Claim>) -> String {
    let mut text = format!("{PROGRAM_OF}{}`{AS_IT_IS}", place.file_name());
    if let Some(claim) = claim {
        let yes = |answer: bool| if answer { "yes" } else { "no" };
        let _ = write!(
            text,
            " The other evaluation says: compiled {}, correct {}",
            yes(claim.compiled),
            yes(claim.correct)
        );
        if let Some(time) = claim.runtime_ms {
            let _ = write!(text, ", {time} ms a call");
        }
        text.push('.');
    }
    text
}

fn write(task: &Task, claims: &Claims, replies: &[String], folder: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        Failure::new("task.not_written", format!("`{}` cannot be written: {error}", folder.display()))
    };
    let spec = spec(&task.bundle.spec, claims.programs.len());
    let mut files = vec![
        (PathBuf::from(TASK_FILE), task_text(task, &spec, claims)?),
        (PathBuf::from(&spec.reference), task.bundle.reference_source.clone()),
        (PathBuf::from(CLAIMS_FILE), json_text(claims)?),
        (reply_file("plan"), plan(&spec)?),
    ];
    for (claimed, text) in claims.programs.iter().zip(replies) {
        files.push((reply_file(&format!("subtask1.attempt{}.write_code", claimed.attempt)), text.clone()));
    }
    std::fs::create_dir_all(folder.join(REPLIES_FOLDER)).map_err(failed)?;
    // Replies of an earlier writing would go on behind the last one.
    for entry in std::fs::read_dir(folder.join(REPLIES_FOLDER)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == REPLY_EXTENSION) {
            std::fs::remove_file(path).map_err(failed)?;
        }
    }
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(failed)?;
        std::fs::write(path, text).map_err(failed)?;
    }
    Ok(())
}

fn reply_file(call: &str) -> PathBuf {
    Path::new(REPLIES_FOLDER).join(format!("{call}.{REPLY_EXTENSION}"))
}

/// The task, whose programs are files of Python, as many as there are. Whatever becomes of one, the next one follows.
fn spec(task: &TaskSpec, programs: usize) -> TaskSpec {
    let goal = TaskGoal {
        max_attempts: u32::try_from(programs).ok(),
        max_replans: Some(0),
        replan_after_failed: Some(MAX_ATTEMPTS),
        replan_after_stagnant: Some(MAX_ATTEMPTS),
        ..TaskGoal::default()
    };
    TaskSpec { form: CandidateForm::Torch, goal, ..task.clone() }
}

/// `task.toml` with the comments that it had at its top, and what was done to it.
fn task_text(task: &Task, spec: &TaskSpec, claims: &Claims) -> Result<String> {
    let max_bytes = u64::try_from(MAX_TASK_FILE_BYTES).unwrap_or(u64::MAX);
    let before = text::read(&task.folder.join(TASK_FILE), max_bytes)?;
    let mut text = String::new();
    for line in before.lines().take_while(|line| line.starts_with('#')) {
        let _ = writeln!(text, "{line}");
    }
    let one_line: String = claims.run.chars().filter(|c| !c.is_control()).collect();
    let _ = writeln!(
        text,
        "#\n# `nightshift import kernelbench-results` put the programs of the run {one_line} into {REPLIES_FOLDER}/;"
    );
    let _ = writeln!(text, "# {CLAIMS_FILE} has what was said of them.\n");
    text.push_str(
        &toml::to_string_pretty(spec)
            .map_err(|error| Failure::new("internal.toml", format!("the task cannot be written as TOML: {error}")))?,
    );
    parse_spec(&text, TASK_FILE).map_err(|error| Failure::new(error.code(), error.message()))?;
    Ok(text)
}

fn plan(spec: &TaskSpec) -> Result<String> {
    let mut scope: Vec<&str> = spec.operators.iter().map(|operator| operator.name.as_str()).take(MAX_SCOPE).collect();
    if scope.is_empty() {
        scope.push("model");
    }
    let plan = json!({
        "summary": "Programs that were written elsewhere, one after the other.",
        "subtasks": [{"title": "The programs", "scope": scope, "fusion_boundary": "As each program has it."}],
    });
    Ok(format!("```json\n{}\n```\n", json_text(&plan)?))
}

fn json_text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new("internal.json", format!("what was claimed cannot be written as JSON: {error}")))
}

#[cfg(test)]
mod tests;
