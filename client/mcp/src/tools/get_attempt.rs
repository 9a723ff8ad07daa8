//! `get_attempt`.

use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::error::ToolError;
use crate::lookup;
use crate::program::{Program, ProgramSummary, Section};
use crate::text::{Window, line, name};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct GetAttempt;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// Number of the attempt within the run.
    number: u32,
    /// Return this section as text, instead of the summary.
    section: Option<Section>,
    /// Offset of the text in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 6144, at most 24576.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the run.
    pub(super) run: String,
    /// Number of the attempt.
    pub(super) number: u32,
    /// The task.
    pub(super) task: String,
    /// The stage that wrote it: draft, a kind of repair, or optimize.
    pub(super) stage: &'static str,
    /// The attempt that it was derived from.
    pub(super) parent: Option<u32>,
    /// Whether it is the best one of its run.
    pub(super) best: bool,
    /// Whether its speedup was confirmed in a fresh process.
    pub(super) confirmed: bool,
    /// Its critical issue, according to the Verifier.
    pub(super) issue: Option<String>,
    /// The verdict; none if a section was requested.
    pub(super) result: Option<ProgramSummary>,
    /// The part of the section, if requested.
    pub(super) section: Option<Window>,
    /// Sections with content. Each is also the resource `nightshift://attempts/RUN/NUMBER/SECTION`.
    pub(super) sections: Vec<&'static str>,
}

impl Tool for GetAttempt {
    const NAME: &'static str = "get_attempt";
    const TITLE: &'static str = "Get an attempt";
    const DESCRIPTION: &'static str = "Reads an attempt of a run: verdict, completeness of evidence, first cause of a failure, speedups with intervals. \
        With `section`: source, compiler (messages, registers, spills), check, sanitizer, measurement, profile (what bounds it), kernels (hardware \
        counters by kernel), diagnosis, difference (against its parent). Sections come in parts: go on with `offset`.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let detail = lookup::run_detail(client, &arguments.run).await?;
        let attempt = lookup::attempt(&detail, arguments.number)?;
        let mut answer = summary(&detail, attempt);
        if let Some(section) = arguments.section {
            let text = section_text(client, &detail, attempt, section).await?;
            answer.section = Some(Window::of(&text, arguments.offset, arguments.limit)?);
            answer.result = None;
        }
        Ok(answer)
    }
}

/// Returns the attempt with its verdict.
pub(super) fn summary(detail: &RunDetail, attempt: &Attempt) -> Answer {
    let program = program(detail, attempt);
    let mut sections = Vec::new();
    sections.extend(attempt.source.as_ref().map(|_| Section::Source));
    sections.extend(program.sections());
    sections.extend(attempt.parent.and(attempt.source.as_ref()).map(|_| Section::Difference));
    Answer {
        run: detail.summary.id.to_string(),
        number: attempt.number,
        task: name(&detail.summary.digest.task),
        stage: attempt.stage.as_str(),
        parent: attempt.parent,
        best: detail.view.best_attempt == Some(attempt.number),
        confirmed: attempt.confirmation.is_some(),
        issue: attempt.diagnosis.as_ref().map(|diagnosis| line(&diagnosis.critical_issue)),
        result: Some(program.summary()),
        section: None,
        sections: sections.into_iter().map(Section::as_str).collect(),
    }
}

fn program<'a>(detail: &RunDetail, attempt: &'a Attempt) -> Program<'a> {
    Program::of_attempt(attempt, detail.view.prepared.as_ref())
}

/// Returns a section as text.
pub(crate) async fn section_text(
    client: &Client,
    detail: &RunDetail,
    attempt: &Attempt,
    section: Section,
) -> Result<String, ToolError> {
    let missing = |why: &str| {
        ToolError::new("request.no_such_section", format!("there is no section `{}`: {why}", section.as_str()))
            .hint("`sections` of the summary lists those that say something")
    };
    let source = async |of: &Attempt| match &of.source {
        Some(hash) => lookup::text(client, hash).await,
        None => Err(missing("the attempt has no source")),
    };
    match section {
        Section::Source => source(attempt).await,
        Section::Difference => {
            let parent = attempt.parent.ok_or_else(|| missing("the attempt was derived from no other"))?;
            let parent = lookup::attempt(detail, parent)?;
            let (before, after) = (source(parent).await?, source(attempt).await?);
            let difference = TextDiff::from_lines(&before, &after);
            let names = (format!("attempt {}", parent.number), format!("attempt {}", attempt.number));
            Ok(difference.unified_diff().context_radius(3).header(&names.0, &names.1).to_string())
        }
        _ => program(detail, attempt).section(section).ok_or_else(|| missing("it has no content")),
    }
}
