//! `nightshift config`: every value with its origin, and the file that is read.

use nightshift_protocol::error::ExitCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::ConfigCommand;
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present::NONE;

pub(super) fn run(context: &Context, command: ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show => show(context)?,
        ConfigCommand::Path => path(context)?,
    }
    Ok(ExitCode::Ok)
}

/// What holds where a key is not set and there is no one value: in words.
const IN_WORDS: [(&str, &str); 17] = [
    ("artifacts.max_bytes", "4 GiB"),
    ("artifacts.url", "the folder artifacts in data_dir; with Postgres, the database"),
    ("database.url", "SQLite in data_dir"),
    ("prices", "the built-in ones alone"),
    ("prompts", "the built-in ones alone"),
    ("server.open_reads", "true, and false where other people use this machine"),
    ("server.otlp_endpoint", "no spans are sent"),
    ("server.retention_days", "for good"),
    ("server.token", "random for each start"),
    ("server.url", "the local one"),
    ("server.worker_token", "random for each start"),
    ("worker.cpp_compiler", "the first that works of g++, c++, clang++"),
    ("worker.cuda_arch", "the GPU's; sm_90a without one"),
    ("worker.hf_home", "none: models find nothing that was fetched before"),
    ("worker.labels", "none"),
    ("worker.nvcc", "the first that works of the search path, the CUDA toolkit, doctor --install-nvcc"),
    ("worker.python", "the first of the search path that has PyTorch"),
];

/// A value as it is shown, with what is in force where it is not set.
#[derive(Serialize)]
struct Line<'a> {
    key: &'a str,
    value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'static str>,
    origin: &'a str,
}

fn lines(context: &Context) -> Vec<Line<'_>> {
    let defaults = compose::defaults(context);
    let lines = context.loaded.shown.iter().map(|shown| match (&shown.value, defaults.get(shown.key.as_str())) {
        (None, Some(value)) => Line { key: &shown.key, value: Some(value.clone()), default: None, origin: "default" },
        (None, None) => {
            let default = IN_WORDS.iter().find(|(key, _)| *key == shown.key).map(|(_, words)| *words);
            Line { key: &shown.key, value: None, default, origin: &shown.origin }
        }
        (value, _) => Line { key: &shown.key, value: value.clone(), default: None, origin: &shown.origin },
    });
    lines.collect()
}

fn show(context: &Context) -> Result<()> {
    // A campaign refuses an unusable model section, and so does this command.
    compose::catalog(context)?;
    let output = context.output;
    let lines = lines(context);
    if output.is_json() {
        return output.json(&json!({
            "file": context.loaded.file,
            "file_read": context.loaded.file_read,
            "values": lines,
        }));
    }
    let mut table = output.table(&["key", "value", "origin"]);
    for line in &lines {
        let value = match &line.value {
            None => format!("({})", line.default.unwrap_or(NONE)),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        table.add_row([
            output.cell(line.key, Tone::Plain),
            output.cell(printable(&value), Tone::Plain),
            output.cell(printable(line.origin), Tone::Plain),
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
