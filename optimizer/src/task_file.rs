//! A task's folder: `task.toml`, the reference it names, and replies for playback.
//!
//! Whatever is wrong is said with file, line and column, before anything is created. Parsing is pure ([`parse_spec`],
//! [`bundle`]); only [`load_folder`] reads files.

mod error;
mod folder;
mod locate;
mod suggest;
mod validate;
mod wording;

use std::collections::BTreeMap;

use nightshift_protocol::campaign::{CampaignSpec, CampaignTask, RunInput};
use nightshift_protocol::task::{MemoryDemand, TASK_SCHEMA, Target, TaskBundle, TaskSpec};

pub use error::TaskError;
pub use folder::{LIBRARY_FILE, REPLIES_FOLDER, REPLY_EXTENSION, TASK_FILE, load_folder};
use locate::Document;
pub use validate::{FORM_UNVERIFIED, unverified_form};

/// Largest `task.toml`, in bytes.
pub const MAX_TASK_FILE_BYTES: usize = 1024 * 1024;
/// Largest reference, in bytes.
pub const MAX_REFERENCE_BYTES: usize = 1024 * 1024;
/// Largest reply file, in bytes.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;
/// Largest sum of all reply files, in bytes: they are stored as one artifact.
pub const MAX_REPLIES_BYTES: usize = 48 * 1024 * 1024;
/// Most reply files.
pub const MAX_REPLIES: usize = 4_000;

/// A task as it was found in a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedTask {
    /// The task.
    pub bundle: TaskBundle,
    /// Replies for playback by the stem of their file, for example `subtask1.attempt1.write_code`; none without a
    /// `replies` folder.
    pub replies: Option<BTreeMap<String, String>>,
}

/// Reads and examines the text of a `task.toml`. `file_label` names it in errors.
pub fn parse_spec(text: &str, file_label: &str) -> Result<TaskSpec, TaskError> {
    if text.len() > MAX_TASK_FILE_BYTES {
        let message = format!("the file has {} bytes, at most {MAX_TASK_FILE_BYTES} are read", text.len());
        return Err(TaskError::new("task.too_large", file_label, message));
    }
    let document = Document::parse(text, file_label)?;
    // A file of another schema would only give misleading errors about its fields.
    if let Some(schema) = document.schema()
        && schema != i64::from(TASK_SCHEMA)
    {
        let message = format!("schema {schema} is not known: this release reads schema {TASK_SCHEMA}");
        return Err(document.error("task.unsupported_schema", &["schema".into()], message));
    }
    let spec: TaskSpec = toml::from_str(text).map_err(|error| document.deserialization(&error))?;
    validate::spec(&spec, &document)?;
    Ok(spec)
}

/// A task from its two texts.
pub fn bundle(spec_text: &str, spec_label: &str, reference_source: String) -> Result<TaskBundle, TaskError> {
    let spec = parse_spec(spec_text, spec_label)?;
    if reference_source.len() > MAX_REFERENCE_BYTES {
        let message =
            format!("the reference has {} bytes, at most {MAX_REFERENCE_BYTES} are read", reference_source.len());
        return Err(TaskError::new("task.too_large", &spec.reference, message));
    }
    if reference_source.trim().is_empty() {
        return Err(TaskError::new("task.no_reference", &spec.reference, "the reference is empty".to_owned()));
    }
    Ok(TaskBundle { spec, reference_source, library_source: None })
}

/// A task from the texts of its files by their names: [`TASK_FILE`], the reference that it names, and perhaps
/// [`LIBRARY_FILE`].
pub fn from_texts(files: &BTreeMap<String, String>) -> Result<TaskBundle, TaskError> {
    let Some(spec_text) = files.get(TASK_FILE) else {
        let message = format!("a native task needs a file `{TASK_FILE}`, and the reference that it names");
        return Err(TaskError::new("task.not_found", TASK_FILE, message));
    };
    let spec = parse_spec(spec_text, TASK_FILE)?;
    let Some(reference) = files.get(&spec.reference) else {
        let message = format!("the reference `{}` is not among the given files", spec.reference);
        return Err(Document::parse(spec_text, TASK_FILE)?.error("task.no_reference", &["reference".into()], message));
    };
    let library = files.get(LIBRARY_FILE).filter(|_| spec.target == Target::Cuda);
    if let Some(library) = library.filter(|library| library.len() > MAX_REFERENCE_BYTES) {
        let message = format!("the file has {} bytes, at most {MAX_REFERENCE_BYTES} are read", library.len());
        return Err(TaskError::new("task.too_large", LIBRARY_FILE, message));
    }
    Ok(TaskBundle { library_source: library.cloned(), ..bundle(spec_text, TASK_FILE, reference.clone())? })
}

/// What a run of this task in this campaign is created with: the campaign's goal over the task's over the defaults.
/// Candidates of a live model need a sandbox unless the campaign waives it.
#[must_use]
pub fn run_input(campaign: &CampaignSpec, task: &CampaignTask, spec: &TaskSpec) -> RunInput {
    RunInput {
        schema: 1,
        task_name: task.name.clone(),
        task: task.bundle.clone(),
        target: spec.target,
        model: campaign.model.clone(),
        models: campaign.models.clone(),
        scripted_replies: task.scripted_replies.clone(),
        knowledge: campaign.knowledge,
        strategy: campaign.strategy.clone(),
        goal: crate::strategy::effective_goal(&campaign.strategy, &spec.goal, &campaign.goal),
        rules: crate::strategy::RULES,
        sandbox_required: (campaign.untrusted_replies || campaign.models.has_live_author(&campaign.model))
            && !campaign.allow_unsandboxed,
        gates: campaign.gates.clone(),
        labels: campaign.labels.clone(),
        compute_capability: spec.min_compute_capability,
        device_memory_bytes: MemoryDemand::of(spec).ok().and_then(MemoryDemand::of_device),
        torch: spec.has_python_reference(),
        precision: Some(spec.precision),
    }
}
