//! `nightshift prompts`: whether every template can be rendered, on steps that campaigns recorded.

use nightshift_optimizer::agent::{Rehearsal, rehearse};
use nightshift_optimizer::prompt::Prompts;
use nightshift_protocol::error::ExitCode;
use serde_json::{Value, json};

use crate::args::PromptsCommand;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present;

/// Digits of a version that are shown.
const VERSION_CHARS: usize = 12;

pub(super) async fn run(context: &Context, command: PromptsCommand) -> Result<ExitCode> {
    let PromptsCommand::Check { folder } = command;
    let prompts = match &folder {
        Some(folder) => Prompts::with_overrides(folder),
        None => Prompts::embedded(),
    };
    let prompts = prompts.map_err(|error| Failure::new(error.code(), error.to_string()))?;
    let rehearsal = rehearse(prompts).await.map_err(|failure| Failure::new(&failure.code, failure.message))?;
    show(context, &rehearsal)?;
    if rehearsal.problems.is_empty() {
        return Ok(ExitCode::Ok);
    }
    let problems = present::count(rehearsal.problems.len(), "problem");
    Err(Failure::new("config.prompt_template", format!("the prompts cannot be used as they are: {problems}")))
}

fn show(context: &Context, rehearsal: &Rehearsal) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        let prompts: Vec<Value> = rehearsal
            .steps
            .iter()
            .map(|step| json!({ "recording": step.name, "version": step.version, "bytes": step.transcript.len() }))
            .collect();
        let problems: Vec<Value> = rehearsal
            .problems
            .iter()
            .map(|found| json!({ "template": found.template, "line": found.line, "message": found.message }))
            .collect();
        return output.json(&json!({ "prompts": prompts, "problems": problems }));
    }
    let mut table = output.table(&["recorded step", "version", "bytes"]);
    for step in &rehearsal.steps {
        table.add_row([
            output.cell(&step.name, Tone::Plain),
            output.cell(step.version.chars().take(VERSION_CHARS).collect::<String>(), Tone::Plain),
            output.cell(step.transcript.len(), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    for problem in &rehearsal.problems {
        output.text(&output.paint(&printable(&problem.to_string()), Tone::Bad))?;
    }
    Ok(())
}
