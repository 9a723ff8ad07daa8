//! `get_best_program`.

use nightshift_protocol::access::Role;
use schemars::JsonSchema;
use serde::Deserialize;

use super::get_attempt::{Answer, section_text, summary};
use crate::error::ToolError;
use crate::lookup;
use crate::program::Section;
use crate::text::Window;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct GetBestProgram;

/// Size of the source in addition to the verdict, in bytes of JSON.
const SOURCE_BYTES: u32 = 4_096;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// Offset of the source in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 4096, at most 24576.
    limit: Option<u32>,
}

impl Tool for GetBestProgram {
    const NAME: &'static str = "get_best_program";
    const TITLE: &'static str = "Get the best program";
    const DESCRIPTION: &'static str = "Reads the best correct attempt of a run: its verdict and its source in `section`. The source comes in parts: \
        go on with `offset`.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let detail = lookup::run_detail(client, &arguments.run).await?;
        let best = detail.view.best_attempt.ok_or_else(|| {
            ToolError::new("run.no_best", "the run has no correct attempt so far")
                .hint("describe_run with section `attempts` shows what happened to them")
        })?;
        let attempt = lookup::attempt(&detail, best)?;
        let source = section_text(client, &detail, attempt, Section::Source).await?;
        let limit = arguments.limit.unwrap_or(SOURCE_BYTES);
        let section = Window::of(&source, arguments.offset, Some(limit))?;
        let mut answer = summary(&detail, attempt);
        if arguments.offset.is_some_and(|offset| offset > 0) {
            answer.result = None;
        }
        Ok(Answer { section: Some(section), ..answer })
    }
}
