//! The templates, and how they become prompts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use nightshift_protocol::attempt::Stage;
use nightshift_protocol::rubric::Skill;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use rust_embed::RustEmbed;
use serde::Serialize;

use super::check::{self, PromptProblem, Seen};
use super::error::{MAX_PROMPT_BYTES, PromptError};
use super::format::fenced;
use super::inclusion::included;
use super::task::{TaskView, language};

/// Largest template of the user's, in bytes.
const MAX_TEMPLATE_BYTES: u64 = 256 * 1024;

/// Folders between the folder of prompts and a template: the agent's and the stage's.
const TEMPLATE_DEPTH: u32 = 2;

/// The line of a template before which everything is the same for all calls of a run that use it. No prompt shows it.
const STABLE_END: &str = "<!-- stable until here -->";

/// What is said when a reply cannot be used: rendered with every recorded step.
const REPAIRS: [&str; 3] = ["shared/repair_code.md", "shared/repair_json.md", "coder/session/repair.md"];

/// The template of the operator's advice.
const ADVICE: &str = "shared/hints.md";
/// The result of a turn of an agent session, and what is left after it.
const TURN_RESULT: [&str; 2] = ["coder/session/result.md", "coder/session/left.md"];

#[derive(RustEmbed)]
#[folder = "../prompts"]
struct Embedded;

/// Which prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Planner: the first plan.
    Plan,
    /// Planner: a new one.
    Replan,
    /// Coder, at a stage, for programs of a form.
    Code(Stage, CandidateForm),
    /// Coder, in a turn of an agent session, for programs of a form.
    Session(CandidateForm),
    /// Verifier, of a correct attempt.
    Diagnose,
    /// Verifier, of a failed one.
    Correct,
    /// Judge, of a skill.
    Judge(Skill),
}

impl Prompt {
    /// The templates of its system and its user part: a folder for each agent and stage.
    fn templates(self) -> [&'static str; 2] {
        macro_rules! stage {
            ($folder:literal) => {
                [concat!($folder, "/system.md"), concat!($folder, "/user.md")]
            };
        }
        match self {
            Self::Plan => stage!("planner/plan"),
            Self::Replan => stage!("planner/replan"),
            Self::Code(Stage::Draft, _) => stage!("coder/draft"),
            Self::Code(Stage::RepairCompile, _) => stage!("coder/repair_compile"),
            Self::Code(Stage::RepairRuntime, _) => stage!("coder/repair_runtime"),
            Self::Code(Stage::RepairCorrectness, _) => stage!("coder/repair_correctness"),
            Self::Code(Stage::RepairCompliance, _) => stage!("coder/repair_compliance"),
            Self::Code(Stage::Optimize, _) => stage!("coder/optimize"),
            Self::Session(_) => stage!("coder/session"),
            Self::Diagnose => stage!("verifier/diagnose"),
            Self::Correct => stage!("verifier/correct"),
            Self::Judge(Skill::FromScratch) => stage!("judge/from_scratch"),
            Self::Judge(Skill::Refinement) => stage!("judge/refinement"),
        }
    }

    /// What is said when the reply cannot be used.
    fn repair(self) -> &'static str {
        match self {
            Self::Code(..) => "shared/repair_code.md",
            Self::Session(_) => "coder/session/repair.md",
            Self::Plan | Self::Replan | Self::Diagnose | Self::Correct | Self::Judge(_) => "shared/repair_json.md",
        }
    }
}

/// A prompt as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Who the model is and which rules it keeps.
    pub system: String,
    /// The question.
    pub user: String,
    /// Bytes at its beginning that are the same for other calls of the run; 0 when the template does not say.
    pub stable_user_bytes: usize,
    /// blake3 over the templates that it was made from.
    pub version: String,
}

/// The templates.
#[derive(Debug)]
pub struct Prompts {
    environment: Environment<'static>,
    sources: BTreeMap<String, String>,
    /// The recorded renderings; none unless [`Prompts::watched`] was called.
    seen: Option<Mutex<Vec<Seen>>>,
}

impl Prompts {
    /// The templates that ship with the program.
    pub fn embedded() -> Result<Self, PromptError> {
        Self::of(embedded_sources())
    }

    /// Returns the embedded templates, with the files of a folder in place of those of the same name.
    pub fn with_overrides(folder: &Path) -> Result<Self, PromptError> {
        let mut sources = embedded_sources();
        let known = sources.keys().cloned().collect::<Vec<_>>().join(", ");
        for path in markdown_files(folder)? {
            let name = path.strip_prefix(folder).ok().map(|relative| {
                relative.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
            });
            let Some(source) = name.and_then(|name| sources.get_mut(&name)) else {
                return Err(PromptError::Unknown { path, known });
            };
            *source = std::fs::read_to_string(&path).map_err(|error| PromptError::unreadable(&path, &error))?;
            if source.trim().is_empty() {
                let why = "it is empty; remove it, and the template that ships is used".to_owned();
                return Err(PromptError::Unreadable { path, why });
            }
        }
        Self::of(sources)
    }

    /// Renders a prompt.
    pub fn render(&self, prompt: Prompt, values: &impl Serialize) -> Result<Rendered, PromptError> {
        let names = prompt.templates();
        self.note(names, values);
        let (system, _) = self.with_stable_bytes(names[0], values)?;
        let (user, stable_user_bytes) = self.with_stable_bytes(names[1], values)?;
        Ok(Rendered { system, user, stable_user_bytes, version: self.version(&names) })
    }

    /// Returns the rules that programs of a form have to keep, and the text of their contract.
    pub fn contract(&self, task: &TaskBundle, form: CandidateForm) -> Result<String, StepFailure> {
        let name = match form {
            CandidateForm::Native => "coder/native.md",
            CandidateForm::Torch => "coder/torch.md",
        };
        let mut task = task.clone();
        task.spec.form = form;
        let view = TaskView::new(&task).map_err(|error| StepFailure::fatal("task.bad_shape", error.to_string()))?;
        let values =
            BTreeMap::from([("target", Value::from(task.spec.target.as_str())), ("task", Value::from(Serde(&view)))]);
        let rules = self.one(name, &values)?;
        Ok(format!("{}\n\n{}", rules.trim_end(), super::contract(&task.spec)))
    }

    /// What is said in the second turn, when the reply to `prompt` cannot be used.
    pub fn repair(&self, prompt: Prompt, problem: &str) -> Result<String, PromptError> {
        let form = match prompt {
            Prompt::Code(_, form) | Prompt::Session(form) => form,
            Prompt::Plan | Prompt::Replan | Prompt::Diagnose | Prompt::Correct | Prompt::Judge(_) => {
                CandidateForm::default()
            }
        };
        self.one(prompt.repair(), &BTreeMap::from([("problem", problem), ("language", language(form))]))
    }

    /// Returns the operator's advice as a section of its own; empty without any.
    pub fn advice(&self, hints: &[String]) -> Result<String, PromptError> {
        self.one(ADVICE, &BTreeMap::from([("hints", hints)]))
    }

    /// Returns the text that the Coder gets after a turn of an agent session: the result, and what is left.
    pub fn turn_result(&self, values: &impl Serialize) -> Result<[String; 2], PromptError> {
        self.note(TURN_RESULT, values);
        let [result, left] = TURN_RESULT;
        Ok([self.one(result, values)?, self.one(left, values)?])
    }

    /// Records the names and values of a rendering, after [`Prompts::watched`].
    fn note(&self, names: [&'static str; 2], values: &impl Serialize) {
        if let Some(seen) = &self.seen {
            let values = Value::from(Serde(values));
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(Seen { names, values });
        }
    }

    /// Returns the same templates, recording what they render for [`Prompts::problems`].
    pub(crate) fn watched(self) -> Self {
        Self { seen: Some(Mutex::default()), ..self }
    }

    /// Returns the problems of the templates that the recorded renderings show.
    pub(crate) fn problems(&self) -> Vec<PromptProblem> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        check::problems(&self.environment, &self.sources, &seen, &REPAIRS)
    }

    fn of(sources: BTreeMap<String, String>) -> Result<Self, PromptError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(
            syntax.map_err(|error| PromptError::Template { name: "syntax".to_owned(), detail: chain(&error) })?,
        );
        environment.add_filter("fenced", fenced);
        for (name, source) in &sources {
            environment
                .add_template_owned(name.clone(), source.clone())
                .map_err(|error| PromptError::Template { name: name.clone(), detail: chain(&error) })?;
        }
        Ok(Self { environment, sources, seen: None })
    }

    fn one(&self, name: &str, values: &impl Serialize) -> Result<String, PromptError> {
        self.with_stable_bytes(name, values).map(|(text, _)| text)
    }

    /// A rendered template, and how many bytes at its beginning are stable.
    fn with_stable_bytes(&self, name: &str, values: &impl Serialize) -> Result<(String, usize), PromptError> {
        let text = self
            .environment
            .get_template(name)
            .and_then(|template| template.render(Serde(values)))
            .map_err(|error| PromptError::Template { name: name.to_owned(), detail: chain(&error) })?;
        let (text, stable_bytes) = split_off_mark(&text);
        if text.len() > MAX_PROMPT_BYTES {
            return Err(PromptError::TooLarge { name: name.to_owned(), bytes: text.len() });
        }
        Ok((text, stable_bytes))
    }

    /// The hash of these templates and of all that they include.
    fn version(&self, names: &[&str]) -> String {
        let mut used = BTreeSet::new();
        let mut open: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        while let Some(name) = open.pop() {
            if let Some(source) = self.sources.get(&name)
                && used.insert(name)
            {
                open.extend(included(source));
            }
        }
        let mut hasher = blake3::Hasher::new();
        for name in &used {
            hasher.update(name.as_bytes()).update(&[0]);
            hasher.update(self.sources.get(name).map_or("", String::as_str).as_bytes()).update(&[0]);
        }
        hasher.finalize().to_hex().to_string()
    }
}

fn embedded_sources() -> BTreeMap<String, String> {
    Embedded::iter()
        .filter(|name| name.ends_with(".md"))
        .filter_map(|name| {
            let file = Embedded::get(&name)?;
            Some((name.into_owned(), String::from_utf8_lossy(&file.data).into_owned()))
        })
        .collect()
}

/// The Markdown files of a folder and of the folders in it, as deep as those of the templates, in order.
fn markdown_files(folder: &Path) -> Result<Vec<PathBuf>, PromptError> {
    let mut files = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((next, depth)) = open.pop() {
        let entries = std::fs::read_dir(&next).map_err(|error| PromptError::unreadable(&next, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| PromptError::unreadable(&next, &error))?.path();
            // A folder that is named as a template stands where a file was meant.
            if !path.is_dir() || is_markdown(&path) {
                files.push(path);
            } else if depth < TEMPLATE_DEPTH {
                open.push((path, depth + 1));
            }
        }
    }
    files.retain(|path| is_markdown(path));
    files.sort();
    for file in &files {
        let metadata = file.metadata().map_err(|error| PromptError::unreadable(file, &error))?;
        if !metadata.is_file() {
            let why = "it is named as a template and is no regular file".to_owned();
            return Err(PromptError::Unreadable { path: file.clone(), why });
        }
        if metadata.len() > MAX_TEMPLATE_BYTES {
            let why = format!("it has more than {MAX_TEMPLATE_BYTES} bytes");
            return Err(PromptError::Unreadable { path: file.clone(), why });
        }
    }
    Ok(files)
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// A text without gaps and without the mark of its stable beginning, and the length of that beginning in bytes.
fn split_off_mark(text: &str) -> (String, usize) {
    let Some((before, after)) = text.split_once(STABLE_END) else { return (without_gaps(text), 0) };
    let whole = without_gaps(&format!("{before}{after}"));
    let stable = without_gaps(before);
    let stable_bytes = if whole.starts_with(&stable) { stable.len() } else { 0 };
    (whole, stable_bytes)
}

/// At most one empty line in a row outside fenced blocks, and always one before a heading: conditions and inclusions in
/// templates leave more or fewer behind.
fn without_gaps(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut fence: Option<String> = None;
    let mut gap = true;
    for line in text.lines() {
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            None if ticks.len() >= 3 => fence = Some(ticks),
            Some(open) if line == open => fence = None,
            _ => {}
        }
        let empty = line.trim().is_empty();
        if fence.is_none() && line.starts_with("## ") && !gap {
            kept.push('\n');
        }
        if fence.is_some() || !empty || !gap {
            kept.push_str(if fence.is_none() { line.trim_end() } else { line });
            kept.push('\n');
        }
        gap = empty;
    }
    kept.truncate(kept.trim_end().len());
    kept.push('\n');
    kept
}

fn chain(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = Cow::from(format!("{text}: {error}")).into_owned();
        cause = error.source();
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn every_template_parses_and_every_inclusion_exists() {
        let prompts = Prompts::embedded().unwrap();
        for (name, source) in &prompts.sources {
            for wanted in included(source) {
                assert!(prompts.sources.contains_key(&wanted), "{name} includes {wanted}");
            }
            assert_eq!(source.matches("include").count(), included(source).len() + source.matches("includes").count());
        }
    }

    #[test]
    fn the_mark_of_the_stable_beginning_is_not_shown() {
        let text = format!("## One\n\n1\n\n{STABLE_END}\n\n## Two\n");
        assert_eq!(split_off_mark(&text), ("## One\n\n1\n\n## Two\n".to_owned(), "## One\n\n1\n".len()));
        assert_eq!(split_off_mark("one\n"), ("one\n".to_owned(), 0));
        assert_eq!(split_off_mark(&format!("one {STABLE_END}two")), ("one two\n".to_owned(), 0), "not at a line's end");
    }

    #[test]
    fn every_prompt_has_its_templates() {
        let prompts = Prompts::embedded().unwrap();
        let stages = [
            Stage::Draft,
            Stage::RepairCompile,
            Stage::RepairRuntime,
            Stage::RepairCorrectness,
            Stage::RepairCompliance,
            Stage::Optimize,
        ];
        let mut all = vec![Prompt::Plan, Prompt::Replan, Prompt::Diagnose, Prompt::Correct];
        all.extend(stages.map(|stage| Prompt::Code(stage, CandidateForm::Native)));
        all.push(Prompt::Session(CandidateForm::Native));
        all.extend([Skill::FromScratch, Skill::Refinement].map(Prompt::Judge));
        for prompt in all {
            for name in prompt.templates().into_iter().chain([prompt.repair()]) {
                assert!(prompts.sources.contains_key(name), "{prompt:?} wants {name}");
            }
        }
        for stage in stages {
            assert_eq!(
                Prompt::Code(stage, CandidateForm::Torch).templates()[1],
                format!("coder/{}/user.md", stage.as_str())
            );
        }
    }

    #[test]
    fn a_version_changes_with_an_included_template_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("shared")).unwrap();
        std::fs::write(folder.path().join("shared/previous_program.md"), "Changed.").unwrap();
        let (before, after) = (Prompts::embedded().unwrap(), Prompts::with_overrides(folder.path()).unwrap());
        let version = |prompts: &Prompts, prompt: Prompt| prompts.version(&prompt.templates());
        assert_ne!(version(&before, Prompt::Diagnose), version(&after, Prompt::Diagnose));
        assert_eq!(version(&before, Prompt::Plan), version(&after, Prompt::Plan));
    }

    #[test]
    fn a_file_that_replaces_nothing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("planer.md"), "x").unwrap();
        let error = Prompts::with_overrides(folder.path()).unwrap_err();
        assert!(error.to_string().contains("planner/system.md"), "{error}");
    }

    #[test]
    fn a_wrong_template_names_itself_and_the_line() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("planner/plan")).unwrap();
        std::fs::write(folder.path().join("planner/plan/user.md"), "a\n{% if %}").unwrap();
        let error = Prompts::with_overrides(folder.path()).unwrap_err().to_string();
        assert!(error.contains("planner/plan/user.md") && error.contains(":2"), "{error}");
    }

    #[test]
    fn gaps_close_outside_of_code_only() {
        assert_eq!(without_gaps("a\n## b\n\n## c"), "a\n\n## b\n\n## c\n");
        assert_eq!(without_gaps("\n\na\n\n\n\nb\n```\nx\n\n\ny\n```\n\n\nc\n\n"), "a\n\nb\n```\nx\n\n\ny\n```\n\nc\n");
    }
}
