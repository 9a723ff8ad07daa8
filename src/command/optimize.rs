//! `nightshift optimize`: one model or program, from its file to a faster one.

mod agent;
mod result;

use std::path::{Path, PathBuf};

use nightshift_protocol::campaign::KnowledgeUse;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::task::{PYTHON_EXTENSION, Target, TaskGoal, TaskSpec};

use super::run::{self, Campaign};
use crate::args::{Following, ModelFlags, Optimize};
use crate::coding_agent::CodingAgent;
use crate::compose;
use crate::context::Context;
use crate::examples::LoadedTask;
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::kernelbench::one_file::{self, is_python};
use crate::limits::Limits;
use crate::models;
use crate::submit::{Again, SubmitRequest};

/// The end of the names of files that are written.
const SUFFIX: &str = "_optimized";
/// The strategy whose runs are agent sessions.
const SESSION_STRATEGY: &str = "agent";
/// The ending of the file with the evidence.
const EVIDENCE_EXTENSION: &str = "json";

pub(super) async fn run(context: &Context, args: Optimize) -> Result<ExitCode> {
    let agent = args.agent.as_deref().map(CodingAgent::new);
    let (context, model) = match (&agent, &args.model) {
        (Some(agent), _) => agent::configured(context, agent)?,
        (None, Some(model)) => (context.clone(), model.clone()),
        (None, None) => {
            return Err(Failure::new("usage.invalid", "name a model with --model, or an agent with --agent"));
        }
    };
    // A session is no prompt: the agent works on it with tools, and answers the prompts of the other roles.
    let worker = agent.filter(|_| args.strategy == SESSION_STRATEGY);
    let coder_model = worker.as_ref().map(CodingAgent::session_model);
    let flags = ModelFlags { model, planner_model: None, coder_model, verifier_model: None, judge_model: None };
    let models = models::models(&context, &flags)?;
    let task = load(&context, &args).await?;
    let files = Files::new(&args, &task.bundle.spec);
    files.check(&args.task, &task.bundle.spec.name, args.force)?;
    run::check_models(&context, &models).await?;
    let wanted = SubmitRequest {
        name: format!("optimize {}", task.bundle.spec.name),
        models,
        goal: TaskGoal { target_speedup: args.target_speedup, max_attempts: args.max_attempts, ..TaskGoal::default() },
        strategy: args.strategy,
        allow_unsandboxed: args.allow_unsandboxed,
        tasks: vec![task],
        limits: Limits { budget: args.budget.caps(), ..Limits::default() },
        knowledge: KnowledgeUse { notes: true, lessons: true },
        untrusted_replies: false,
        again: match (args.new, args.force) {
            (true, _) => Again::Begins,
            (false, true) => Again::Continues,
            (false, false) => Again::Reports,
        },
    };
    let follow = Following { exit: true, new: args.new, bind: None };
    let campaign = Campaign { wanted, follow, record: None, agent: worker };
    run::carry_out_and(&context, campaign, async |client, followed| {
        result::write(&context, client, followed, &args.task, &files).await
    })
    .await
}

/// Loads the task. The inspection of a model takes seconds.
async fn load(context: &Context, args: &Optimize) -> Result<LoadedTask> {
    let path = PathBuf::from(&args.task);
    let mut task = if is_python(&path) {
        let model_use = args.model_use;
        let config = compose::worker_config(context, "", None, true, None)?;
        let (output, cancel) = (context.output, context.cancel_on_interrupt());
        let inspect = move || one_file::load(&path, model_use, &config, &cancel, output);
        let bundle = tokio::task::spawn_blocking(inspect)
            .await
            .map_err(|error| Failure::new("internal.import", format!("the inspection broke down: {error}")))??;
        LoadedTask { bundle, replies: None }
    } else {
        run::task(&args.task)?
    };
    one_file::check_use(args.model_use, &task.bundle.spec)?;
    if context.interrupt.is_cancelled() {
        return Err(Failure::new(INTERRUPTED, "stopped before the search began"));
    }
    if let Some(policy) = args.policy {
        task.bundle.spec = task.bundle.spec.under(policy);
    }
    Ok(task)
}

/// The files that a successful search writes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    /// The faster program.
    program: PathBuf,
    /// The evidence: the whole run as JSON.
    evidence: PathBuf,
}

impl Files {
    fn new(args: &Optimize, spec: &TaskSpec) -> Self {
        let program = args.out.clone().unwrap_or_else(|| beside(Path::new(&args.task), spec));
        let evidence = program.with_extension(EVIDENCE_EXTENSION);
        Self { program, evidence }
    }

    /// Refuses files that exist or cannot be written, before anything is spent. Those of a search for the same task, by its
    /// name, that was not over are replaced.
    fn check(&self, task: &str, name: &str, force: bool) -> Result<()> {
        if self.program == self.evidence {
            let message = format!("`{}` would hold the evidence, too", self.program.display());
            return Err(Failure::new("usage.invalid", message).hint("name a file with another ending with --out"));
        }
        let folder = self.program.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Err(error) = tempfile::tempfile_in(folder) {
            let message = format!("nothing can be written to the folder `{}`: {error}", folder.display());
            return Err(Failure::new("usage.invalid", message)
                .hint("make the folder, or name a file in another one with --out"));
        }
        let is_task = |path: &&PathBuf| {
            path.canonicalize().is_ok_and(|path| Path::new(task).canonicalize().is_ok_and(|task| task == path))
        };
        if let Some(path) = [&self.program, &self.evidence].into_iter().find(is_task) {
            let message = format!("`{}` is the task's own file", path.display());
            return Err(Failure::new("usage.invalid", message).hint("name another file with --out"));
        }
        let may_replace = force || result::is_unfinished(&self.evidence, name);
        match [&self.program, &self.evidence].into_iter().find(|path| path.exists() && !may_replace) {
            None => Ok(()),
            Some(path) => Err(Failure::new("usage.file_exists", format!("`{}` exists already", path.display()))
                .hint("choose another file with --out, or give --force to replace it")),
        }
    }
}

/// Returns the path of the program beside the task's file; in the working folder for a folder or an example.
fn beside(task: &Path, spec: &TaskSpec) -> PathBuf {
    let extension = match spec.target {
        _ if spec.torch.is_some() => PYTHON_EXTENSION,
        Target::Cpu => "cpp",
        Target::Cuda => "cu",
    };
    if is_python(task) {
        let stem = task.file_stem().unwrap_or_default().to_string_lossy();
        task.with_file_name(format!("{stem}{SUFFIX}.{extension}"))
    } else {
        PathBuf::from(format!("{}{SUFFIX}.{extension}", spec.name))
    }
}
