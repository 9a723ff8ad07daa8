//! `get_verification`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verifications;
use crate::error::ToolError;
use crate::limits::{MAX_WAIT_S, WAIT_S};
use crate::program::{self, ProgramSummary, Section};
use crate::text::{Window, name};
use crate::tool::{Access, Call, Effect, Tool};
use crate::verification::{Stage, Verification};

pub(crate) struct GetVerification;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The handle from verify_program.
    verification: String,
    /// Seconds to wait for the verdict, 0 to 45; default 30.
    wait_s: Option<u32>,
    /// Return this section as text, instead of the summary.
    section: Option<Section>,
    /// Offset of the text in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 6144, at most 24576.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The handle.
    verification: String,
    /// `queued`, `running` or `ended`.
    state: &'static str,
    /// Seconds since the start.
    age_s: u64,
    /// Name of the task.
    task: String,
    /// The verdict; none before the end, and if a section was requested.
    result: Option<ProgramSummary>,
    /// The part of the section, if requested.
    section: Option<Window>,
    /// Sections with content.
    sections: Vec<&'static str>,
    /// What to do next.
    next: String,
}

impl Tool for GetVerification {
    const NAME: &'static str = "get_verification";
    const TITLE: &'static str = "Get a verification";
    const DESCRIPTION: &'static str = "Waits for the verdict of verify_program and reads it: verdict, evidence and fault apart, the first cause of a \
        failure, speedups with intervals. Without `section` it answers with the summary; with it, with a part of compiler, check, measurement, \
        profile, kernels or source as a text. Call it again with the same handle until `state` is `ended`.";
    const ACCESS: Access = Access::Judges;
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let verification = verifications(call)?.get(&arguments.verification)?;
        let Some(section) = arguments.section else {
            return answer_after(call, &verification, arguments.wait_s).await;
        };
        let text = section_text(&verification, section)?;
        let window = Window::of(&text, arguments.offset, arguments.limit)?;
        Ok(Answer { result: None, section: Some(window), ..answer(&verification, &verification.stage())? })
    }
}

/// Returns a section as text.
pub(crate) fn section_text(verification: &Verification, section: Section) -> Result<String, ToolError> {
    if section == Section::Source {
        return Ok(verification.request.source.clone());
    }
    let missing = |why: &str, hint: &str| {
        ToolError::new("request.no_such_section", format!("there is no section `{}`: {why}", section.as_str()))
            .hint(hint)
    };
    let Stage::Ended(result) = verification.stage() else {
        return Err(missing("the program is not judged yet", "wait for `state` ended first"));
    };
    let judged = result.as_ref().as_ref().map_err(Clone::clone)?;
    program::section(judged, section).ok_or_else(|| {
        missing("it has no content", "`sections` lists those that say something; `profile` needs profile=true")
    })
}

/// Waits, and returns the summary.
pub(super) async fn answer_after(
    call: &Call<'_>,
    verification: &Verification,
    wait_s: Option<u32>,
) -> Result<Answer, ToolError> {
    let wait = Duration::from_secs(u64::from(wait_s.unwrap_or(WAIT_S).min(MAX_WAIT_S)));
    let stage = verification.wait(wait, &call.progress).await;
    answer(verification, &stage)
}

fn answer(verification: &Verification, stage: &Stage) -> Result<Answer, ToolError> {
    let open = |state| Answer {
        verification: verification.id.clone(),
        state,
        age_s: verification.age_s(),
        task: name(&verification.request.task),
        result: None,
        section: None,
        sections: vec![Section::Source.as_str()],
        next: "call get_verification with this handle; it waits for the verdict".to_owned(),
    };
    match stage {
        Stage::Queued => Ok(open("queued")),
        Stage::Running => Ok(open("running")),
        Stage::Ended(result) => {
            let judged = result.as_ref().as_ref().map_err(Clone::clone)?;
            let mut sections = vec![Section::Source];
            sections.extend(program::sections(judged));
            Ok(Answer {
                state: "ended",
                task: name(&judged.task),
                result: Some(program::summary(judged)),
                sections: sections.into_iter().map(Section::as_str).collect(),
                next: next(judged),
                ..open("ended")
            })
        }
    }
}

fn next(judged: &crate::ports::Judged) -> String {
    let next = match &judged.result {
        Err(_) => "the machine or the reference failed: nothing is said about the program; try again, or tell the user",
        Ok(found) if found.outcome.is_correct() && found.profile.is_some() => {
            "read the sections `profile` and `kernels`, and remove what `bound` names"
        }
        Ok(found) if found.outcome.is_correct() && found.profile_failure.is_some() => {
            "there is no profile, and `profile_failure` says why: optimize without one, or tell the user"
        }
        Ok(found) if found.outcome.is_correct() => "verify with profile=true to see what bounds it",
        Ok(found) if found.build.is_some() && found.check.is_none() => "read the section `compiler`",
        Ok(found) if found.check.is_some() => "read the section `check`",
        Ok(_) => "change what `findings` and `reason` name",
    };
    next.to_owned()
}
