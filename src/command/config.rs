//! `nightshift config`: every value with its origin, and the file that is read.

use nightshift_protocol::error::ExitCode;
use serde_json::{Value, json};

use crate::args::ConfigCommand;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};

pub(super) fn run(context: &Context, command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show => show(context)?,
        ConfigCommand::Path => path(context)?,
    }
    Ok(ExitCode::Ok)
}

fn show(context: &Context) -> Result<()> {
    let output = context.output;
    let values = &context.loaded.shown;
    if output.is_json() {
        return output.json(&json!({
            "file": context.loaded.file,
            "file_read": context.loaded.file_read,
            "values": values,
        }));
    }
    let mut table = output.table(&["key", "value", "origin"]);
    for shown in values {
        let value = match &shown.value {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        table.add_row([
            output.cell(&shown.key, Tone::Plain),
            output.cell(printable(&value), Tone::Plain),
            output.cell(printable(&shown.origin), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())
}

fn path(context: &Context) -> Result<()> {
    let Some(file) = &context.loaded.file else {
        return Err(Failure::new(
            "config.no_file",
            "there is no place for a configuration file: neither HOME nor XDG_CONFIG_HOME is set",
        )
        .hint("name one with --config or NIGHTSHIFT_CONFIG"));
    };
    if context.output.is_json() {
        context.output.json(&json!({ "file": file, "exists": context.loaded.file_read }))
    } else {
        if !context.loaded.file_read {
            context.output.note("there is no such file yet; the defaults are in force");
        }
        context.output.text(&file.display().to_string())
    }
}
