//! `nightshift run`: a campaign over tasks of one's own.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_optimizer::strategy::{
    DEFAULT_CANDIDATES_PER_ROUND, MAX_ATTEMPTS, MAX_CANDIDATES_PER_ROUND, is_known, min_candidates, with_candidates,
};
use nightshift_protocol::campaign::KnowledgeUse;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::task::TaskGoal;

use crate::args::{Following, Run};
use crate::coding_agent::{self, CodingAgent, Site};
use crate::compose::{self, Local, Unfinished};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::examples::{self, LoadedTask};
use crate::failure::{Failure, Result};
use crate::follow::{self, Followed, Until};
use crate::kernelbench::claims;
use crate::models::{self, Models};
use crate::server_file;
use crate::submit::{self, Again, Before, Prepared, SubmitRequest};
use crate::{record, results};

/// A free port of this machine, for a server that lives as long as its command.
pub(super) const OWN_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A campaign to be carried out and followed.
pub(super) struct Campaign {
    /// What is asked for.
    pub(super) wanted: SubmitRequest,
    /// How to follow the campaign
    pub(super) follow: Following,
    /// Where replies are stored.
    pub(super) record: Option<PathBuf>,
    /// The coding agent that works on its sessions.
    pub(super) agent: Option<CodingAgent>,
}

pub(super) async fn run(context: &Context, args: Run) -> Result<ExitCode> {
    let (max_attempts, candidates_per_round) = groups(&args)?;
    let models = models::models(context, &args.models)?;
    let mut tasks = args.tasks.iter().map(|text| task(text)).collect::<Result<Vec<_>>>()?;
    if let Some(policy) = args.policy {
        for task in &mut tasks {
            task.bundle.spec = task.bundle.spec.clone().under(policy);
        }
    }
    unique(&tasks)?;
    check_models(context, &models).await?;
    let names: Vec<&str> = tasks.iter().map(|task| task.bundle.spec.name.as_str()).collect();
    let wanted = SubmitRequest {
        name: args.name.unwrap_or_else(|| names.join(", ").chars().take(MAX_NAME_CHARS).collect()),
        models,
        goal: TaskGoal {
            target_speedup: args.target_speedup,
            target_baseline: args.target_baseline,
            max_attempts,
            max_replans: args.max_replans,
            max_fix_turns: args.max_fix_turns,
            max_turns: args.max_turns,
            max_variants: args.max_variants,
            candidates_per_round,
            ..TaskGoal::default()
        },
        strategy: args.strategy,
        allow_unsandboxed: args.allow_unsandboxed,
        tasks,
        limits: args.limits.limits()?,
        knowledge: KnowledgeUse { notes: !args.no_notes, lessons: !args.no_lessons },
        untrusted_replies: args.tasks.iter().any(|text| claims::has_programs_of_others(Path::new(text))),
        again: Again::unless_new(args.follow.new),
    };
    carry_out(context, Campaign { wanted, follow: args.follow, record: args.record, agent: None }).await
}

/// Refuses models that a server of this process could not ask: better now than by the first step that needs one.
pub(super) async fn check_models(context: &Context, models: &Models) -> Result<()> {
    if context.config().server.url.is_none() {
        for model in models.every().iter().filter(|model| !model.is_scripted()) {
            compose::check_model(context, model)?;
            compose::note_silent_endpoint(context, model).await?;
        }
    }
    Ok(())
}

/// Attempts of a run and candidates of a round: so many groups are so many times as many attempts.
fn groups(args: &Run) -> Result<(Option<u32>, Option<u32>)> {
    let refused = |message: String| Err(Failure::new("usage.invalid", message));
    let takers = with_candidates();
    // The server refuses an unknown strategy and lists the known ones.
    if args.candidates.is_some() && is_known(&args.strategy) && !takers.contains(&args.strategy.as_str()) {
        return refused(format!(
            "--candidates belongs to --strategy {}, and this is --strategy {}",
            takers.join(" or "),
            args.strategy
        ));
    }
    let fewest = min_candidates(&args.strategy);
    if args.candidates.is_some_and(|candidates| candidates < fewest) {
        return refused(format!(
            "--candidates has to be from {fewest} to {MAX_CANDIDATES_PER_ROUND} with --strategy {}, whose candidates are \
             compared with each other",
            args.strategy
        ));
    }
    let Some(groups) = args.groups else { return Ok((args.max_attempts, args.candidates)) };
    if fewest < 2 {
        return refused(format!("--groups belongs to --strategy group, and this is --strategy {}", args.strategy));
    }
    let size = args.candidates.unwrap_or(DEFAULT_CANDIDATES_PER_ROUND);
    match groups.saturating_mul(size) {
        attempts if attempts <= MAX_ATTEMPTS => Ok((Some(attempts), Some(size))),
        attempts => refused(format!(
            "{groups} groups of {size} are {attempts} attempts; a run has {MAX_ATTEMPTS} at most: lower --groups or \
             --candidates"
        )),
    }
}

/// What makes a folder a task.
const TASK_FILE: &str = "task.toml";
/// Paused campaigns that are named.
const MAX_OTHERS_NAMED: usize = 3;
/// Longest name that is made from the tasks' names.
const MAX_NAME_CHARS: usize = 80;

pub(super) fn task(text: &str) -> Result<LoadedTask> {
    let folder = Path::new(text);
    if folder.is_dir() {
        return examples::from_folder(folder);
    }
    if folder.is_file() && folder.file_name().is_some_and(|name| name == TASK_FILE) {
        let folder = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        return examples::from_folder(folder.unwrap_or_else(|| Path::new(".")));
    }
    if text.contains('/') || text == "." || text == ".." {
        return Err(Failure::new("task.not_found", format!("there is no folder `{text}`")));
    }
    examples::one(text)
}

fn unique(tasks: &[LoadedTask]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match tasks.iter().map(|task| task.bundle.spec.name.as_str()).find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(Failure::new("campaign.duplicate_task", format!("the task `{name}` was named twice"))),
    }
}

/// Creates or continues the campaign, follows it, shows its result and, unless told otherwise, keeps serving it.
pub(super) async fn carry_out(context: &Context, campaign: Campaign) -> Result<ExitCode> {
    carry_out_and(context, campaign, async |client, followed| results::show(context, client, followed).await).await
}

/// The same with another result, which gives the exit code.
pub(super) async fn carry_out_and(
    context: &Context,
    campaign: Campaign,
    show: impl AsyncFnOnce(&Client, &Followed) -> Result<ExitCode>,
) -> Result<ExitCode> {
    campaign.record.as_deref().map_or(Ok(()), record::prepare)?;
    let bind = campaign.follow.bind.unwrap_or(OWN_ADDRESS);
    let Campaign { wanted, follow, record, agent } = campaign;
    let prepared = submit::prepare(wanted)?;
    let except = (prepared.again != Again::Begins).then(|| Box::new(prepared.spec.clone()));
    let purpose = Purpose::Drive { bind, unfinished: Unfinished::Pause { except } };
    let session = Session::open(context, purpose).await?;
    let done = tokio::select! {
        done = with_session(context, &session, prepared, (&follow, record.as_deref(), agent.as_ref()), show) => done,
        failure = session.own_failed() => Err(failure),
    };
    if done.is_err() {
        note_paused(context, &session, &[]);
    }
    let closed = session.close().await;
    let code = done?;
    closed?;
    Ok(code)
}

async fn with_session(
    context: &Context,
    session: &Session,
    prepared: Prepared,
    (follow, record, agent): (&Following, Option<&Path>, Option<&CodingAgent>),
    show: impl AsyncFnOnce(&Client, &Followed) -> Result<ExitCode>,
) -> Result<ExitCode> {
    let output = context.output;
    if !session.drives() {
        return Err(Failure::new("server.does_not_drive", "the server that has the database carries out no runs")
            .hint("wait until the other command has ended, and try again"));
    }
    let submitted = submit::submit(&session.client, prepared).await?;
    output.note(&match submitted.before {
        Before::New => format!("campaign {}", submitted.id),
        Before::Unfinished => format!("continuing the unfinished campaign {} (--new begins another)", submitted.id),
        Before::Completed => format!("the same search ended before: campaign {} (--new begins another)", submitted.id),
    });
    output.note(&format!("pages: {}/campaigns/{}", session.address(), submitted.id));
    if session.own.as_ref().is_some_and(Local::reads_need_token) {
        let file = server_file::path(&context.config().data_dir);
        output.note(&format!("the pages ask for the token in {}", file.display()));
    }
    note_paused(context, session, std::slice::from_ref(&submitted.id));
    let ids = [submitted.id.clone()];
    let following = follow::campaigns(context, &session.client, &ids);
    let followed = match agent.filter(|_| submitted.before != Before::Completed) {
        None => following.await?,
        Some(agent) => {
            let site = Site::new(context, &session.client, agent);
            match coding_agent::work_during(&site, ids[0].clone(), following).await {
                Ok(followed) => followed,
                Err(failure) => {
                    // The command shows the result so far, and fails for the agent's reason.
                    let shown = async { show(&session.client, &follow::now(&session.client, &ids).await?).await };
                    if let Err(error) = shown.await {
                        output.note(&error.to_string());
                    }
                    return Err(failure);
                }
            }
        }
    };
    let recorded = match record {
        Some(folder) => record::record(&session.client, followed.runs(), folder)
            .await
            .map(|replies| output.note(&format!("{replies} replies recorded below {}", folder.display()))),
        None => Ok(()),
    };
    // A recording that failed takes no result with it.
    let code = show(&session.client, &followed).await?;
    recorded?;
    after(context, session, followed.until, follow.exit).await?;
    Ok(code)
}

/// Prints which unfinished campaigns the command paused, except these, and how to continue them. A second call prints nothing.
pub(super) fn note_paused(context: &Context, session: &Session, but: &[CampaignId]) {
    let paused = session.own.as_ref().map(Local::take_paused).unwrap_or_default();
    let names: Vec<String> = paused
        .iter()
        .filter(|campaign| !but.contains(&campaign.id))
        .map(|campaign| format!("{} ({})", campaign.name, campaign.id.short()))
        .collect();
    let named = names.iter().take(MAX_OTHERS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => {}
        1 => context.output.note(&format!(
            "paused an unfinished campaign of the same data folder: {named}; `nightshift resume ID` goes on with it"
        )),
        n => context.output.note(&format!(
            "paused {n} unfinished campaigns of the same data folder: {named}{}; `nightshift resume ID` goes on with \
             one, `nightshift resume --all` with all",
            if n > MAX_OTHERS_NAMED { ", ..." } else { "" }
        )),
    }
}

/// What comes after the result: a word on what is left, and serving the pages until Ctrl-C unless told otherwise.
pub(super) async fn after(context: &Context, session: &Session, until: Until, exit: bool) -> Result<()> {
    say_how_to_go_on(context, session, until);
    if session.own.is_none() || exit || until == Until::Interrupted {
        return Ok(());
    }
    if !context.output.is_json() {
        context.output.text(&format!("pages: {}", session.address()))?;
    }
    context.output.note("serving the pages until Ctrl-C (--exit ends here)");
    context.interrupt.cancelled().await;
    Ok(())
}

/// What a person does about work that is left.
fn say_how_to_go_on(context: &Context, session: &Session, until: Until) {
    match (until, &session.own) {
        (Until::Ended, _) => {}
        (Until::Paused, _) => context.output.note(super::standstill::PAUSED),
        (Until::Interrupted, Some(_)) => context.output.note("`nightshift resume`, or the same command again, goes on"),
        (Until::Interrupted, None) => {
            context.output.note("the server goes on; `nightshift watch ID` follows, `nightshift cancel ID` ends it");
        }
    }
}
