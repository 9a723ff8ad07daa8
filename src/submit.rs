//! Creating a campaign, or finding the unfinished one with the same content.

use nightshift_client::Client;
use nightshift_protocol::api::{CampaignDetail, CreateCampaign, Page};
use nightshift_protocol::api::{CampaignSummary, ControlAction};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, KnowledgeUse};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::task::TaskGoal;

use crate::examples::LoadedTask;
use crate::failure::{Failure, Result};
use crate::limits::Limits;
use crate::models::Models;

/// Earlier campaigns that are looked at for an equal one, newest first.
const MAX_LOOKED_AT: u32 = 100;

/// What is asked for.
pub(crate) struct SubmitRequest {
    /// Name of the campaign.
    pub(crate) name: String,
    /// Where replies come from.
    pub(crate) models: Models,
    /// Values over the tasks' own.
    pub(crate) goal: TaskGoal,
    /// How its runs search.
    pub(crate) strategy: String,
    /// Whether a live model's code may run without a sandbox.
    pub(crate) allow_unsandboxed: bool,
    /// The tasks.
    pub(crate) tasks: Vec<LoadedTask>,
    /// What it may use and when it may work.
    pub(crate) limits: Limits,
    /// What prompts are given beside a run's own history.
    pub(crate) knowledge: KnowledgeUse,
    /// Whether recorded replies hold programs of others, which are not believed to be harmless.
    pub(crate) untrusted_replies: bool,
    /// What becomes of an equal campaign.
    pub(crate) again: Again,
}

/// What the same command does again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It begins a new campaign.
    Begins,
    /// It continues the campaign that is unfinished. After its end, it begins a new one.
    Continues,
    /// It continues the campaign that is unfinished, or reports the one whose runs are completed.
    Reports,
}

impl Again {
    /// Returns what `--new` means for commands that continue.
    pub(crate) fn unless_new(new: bool) -> Self {
        if new { Self::Begins } else { Self::Continues }
    }
}

/// A campaign that now exists.
pub(crate) struct Submitted {
    /// The campaign.
    pub(crate) id: CampaignId,
    /// What it was before.
    pub(crate) before: Before,
}

/// What a campaign was before it was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// There was none.
    New,
    /// It is an earlier one that goes on.
    Unfinished,
    /// It is an earlier one that is over.
    Completed,
}

/// A campaign that is ready to be sent.
pub(crate) struct Prepared {
    /// The request.
    pub(crate) spec: CampaignSpec,
    /// What becomes of an equal campaign.
    pub(crate) again: Again,
    artifacts: Vec<Vec<u8>>,
}

/// Sends the tasks and creates the campaign. The same command again continues the campaign that it left unfinished;
/// after that one has ended, it begins a new one, unless it reports completed ones.
pub(crate) async fn submit(client: &Client, prepared: Prepared) -> Result<Submitted> {
    let Prepared { spec, again, artifacts } = prepared;
    for artifact in artifacts {
        client.put_artifact(&artifact).await?;
    }
    let equal = newest_equal(client, &spec).await?;
    if let Some(found) = equal.as_ref().filter(|_| again != Again::Begins) {
        let (id, runs) = (found.summary.id.clone(), &found.summary.runs);
        if runs.unfinished() > 0 {
            if runs.paused > 0 {
                client.control_campaign(&id, ControlAction::Resume).await?;
            }
            return Ok(Submitted { id, before: Before::Unfinished });
        }
        if again == Again::Reports && runs.completed == runs.total() {
            return Ok(Submitted { id, before: Before::Completed });
        }
    }
    // The key follows from the content and from the equal campaign before, so that a repeated call, and one that was
    // killed before it saw the answer, find the same campaign.
    let earlier = equal.as_ref().map_or("first", |found| found.summary.id.as_str());
    let text = serde_json::to_vec(&spec).map_err(|error| unreadable(&error))?;
    let key = format!("{}-after-{earlier}", ArtifactHash::of(&text).short());
    let created = client.create_campaign(&CreateCampaign { spec }, &key).await?;
    let before = if created.existed { Before::Unfinished } else { Before::New };
    Ok(Submitted { id: created.campaign, before })
}

/// Writes the request and the artifacts that it names.
pub(crate) fn prepare(wanted: SubmitRequest) -> Result<Prepared> {
    let Models { model, plan } = wanted.models;
    let needs_script = plan.needs_script(&model);
    let mut tasks = Vec::with_capacity(wanted.tasks.len());
    let mut artifacts = Vec::new();
    let mut add = |text: Vec<u8>| {
        let hash = ArtifactHash::of(&text);
        artifacts.push(text);
        hash
    };
    for task in &wanted.tasks {
        let bundle = serde_json::to_vec(&task.bundle).map_err(|error| unreadable(&error))?;
        let scripted_replies = match (needs_script, &task.replies) {
            (true, Some(replies)) => Some(add(serde_json::to_vec(replies).map_err(|error| unreadable(&error))?)),
            (true, None) => {
                return Err(Failure::new(
                    "task.no_replies",
                    format!("the task `{}` has no folder `replies` to be played back", task.bundle.spec.name),
                )
                .hint("use a live model with --model PROVIDER/NAME, or record one with --record DIR"));
            }
            (false, _) => None,
        };
        tasks.push(CampaignTask { name: task.bundle.spec.name.clone(), bundle: add(bundle), scripted_replies });
    }
    let spec = CampaignSpec {
        schema: CAMPAIGN_SCHEMA,
        name: wanted.name,
        model,
        models: plan,
        knowledge: wanted.knowledge,
        untrusted_replies: wanted.untrusted_replies,
        strategy: wanted.strategy,
        goal: wanted.goal,
        allow_unsandboxed: wanted.allow_unsandboxed,
        budget: wanted.limits.budget,
        schedule: wanted.limits.schedule,
        priority: wanted.limits.priority,
        weight: wanted.limits.weight,
        gates: wanted.limits.gates,
        labels: wanted.limits.labels,
        tasks,
    };
    Ok(Prepared { spec, again: wanted.again, artifacts })
}

/// The newest campaign that asked for exactly the same.
async fn newest_equal(client: &Client, spec: &CampaignSpec) -> Result<Option<CampaignDetail>> {
    let page: Page<CampaignSummary> = client.campaigns(Some(MAX_LOOKED_AT), None).await?;
    let label = spec.models.label(&spec.model);
    for summary in page.items.iter().filter(|summary| summary.name == spec.name && summary.model == label) {
        let detail = client.campaign(&summary.id).await?;
        if detail.spec == *spec {
            return Ok(Some(detail));
        }
    }
    Ok(None)
}

fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::new("internal.json", format!("the request cannot be written as JSON: {error}"))
}
