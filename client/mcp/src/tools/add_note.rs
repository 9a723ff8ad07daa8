//! `add_note`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::{NewRemark, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::lookup;
use crate::tool::{Access, Call, Effect, Tool};

/// Maximum size of a note, in bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;

pub(crate) struct AddNote;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// An attempt of the run, if the note is about one.
    number: Option<u32>,
    /// Markdown, at most 8 KiB.
    text: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the note.
    note: String,
    /// The target of the note.
    about: String,
}

impl Tool for AddNote {
    const NAME: &'static str = "add_note";
    const TITLE: &'static str = "Add a note";
    const DESCRIPTION: &'static str = "Leaves a note about a run or one of its attempts for people and later agents: what was tried, what it showed, what to try \
        next. A note is no verdict. The same note again is a second note.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::AddsEachTime;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        if arguments.text.trim().is_empty() || arguments.text.len() > MAX_NOTE_BYTES {
            return Err(ToolError::new("request.invalid_arguments", format!("`text` has 1 to {MAX_NOTE_BYTES} bytes")));
        }
        let connection = call.connect().await?;
        let client = &connection.client;
        let run = lookup::run(client, &arguments.run).await?;
        let target = match arguments.number {
            Some(number) => Target::Attempt(run, number),
            None => Target::Run(run),
        };
        let note = client.add_note(&NewRemark { target: target.clone(), text: arguments.text }).await?;
        Ok(Answer { note: note.id.to_string(), about: target.to_string() })
    }
}
