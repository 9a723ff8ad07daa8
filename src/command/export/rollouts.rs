//! `nightshift export rollouts`: training rows of both skills, as trainers read them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_optimizer::rollout::layout::{Layout, skill};
use nightshift_optimizer::rollout::{
    RecordedRun, Rollout, Rollouts, Split, SplitRule, Wish, jsonl, needed, parquet_file, rollouts,
};
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::rubric::Skill;
use nightshift_protocol::task::TaskBundle;
use serde_json::{Value, json};

use super::not_written;
use crate::args::{ExportRollouts, RolloutFormat, RolloutLayout};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::Tone;
use crate::stored_runs;

/// The skills, each with files of its own.
const SKILLS: [Skill; 2] = [Skill::FromScratch, Skill::Refinement];

pub(in crate::command) async fn run(context: &Context, args: ExportRollouts) -> Result<ExitCode> {
    if args.out.exists() && !args.force {
        return Err(Failure::new("usage.file_exists", format!("`{}` exists already", args.out.display()))
            .hint("choose another folder, or give --force to write into it"));
    }
    if args.test_share + args.validation_share > 1.0 {
        return Err(Failure::new("usage.invalid", "the shares for testing and validation are more than everything"));
    }
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let mut runs = Vec::new();
        let mut known = BTreeSet::new();
        for id in stored_runs::named(client, &args.ids).await? {
            let detail = client.run(&id).await?;
            known.insert(detail.summary.digest.task.clone());
            runs.push(recorded(client, detail).await?);
        }
        check_held_out(&args.held_out, &known)?;
        let wish = Wish {
            splits: SplitRule {
                salt: args.salt.clone(),
                validation_share: args.validation_share,
                test_share: args.test_share,
                held_out: args.held_out.iter().cloned().collect(),
            },
            formula: args.formula,
            with_scripted: args.with_scripted,
        };
        let made = rollouts(&runs, &wish).map_err(|leak| Failure::new("rollouts.leak", leak.to_string()))?;
        let files = write(&args, &made)?;
        let manifest = manifest(&args, &made, &files);
        write_file(&args.out.join("manifest.json"), format!("{manifest:#}\n").as_bytes())?;
        show(context, &args, &made, &manifest)?;
        Ok(ExitCode::Ok)
    })
    .await
}

/// A name that no run has holds nothing out: misspelt, it would put the task that was meant into training.
fn check_held_out(held_out: &[String], known: &BTreeSet<String>) -> Result<()> {
    let Some(name) = held_out.iter().find(|name| !known.contains(*name)) else { return Ok(()) };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Failure::new("usage.unknown_task", format!("--held-out `{name}`: no exported run has a task of this name"))
        .hint(format!("tasks of the exported runs: {known}")))
}

/// A run with what its rows need. A run without attempts counts as well: its task decides the split of its family. What was
/// pruned is missing, which its rows say.
async fn recorded(client: &Client, detail: RunDetail) -> Result<RecordedRun> {
    let bytes = client.get_artifact(&detail.view.task).await?;
    let bundle: TaskBundle = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new("task.unreadable", format!("the task of {} cannot be read: {error}", detail.summary.id))
    })?;
    let mut texts = BTreeMap::new();
    for hash in needed(&detail) {
        match client.get_artifact(&hash).await {
            Ok(bytes) => drop(texts.insert(hash, String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.code() == "artifact.not_found" => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(RecordedRun { detail, bundle, texts })
}

/// Files by name, with the number of their rows.
type Files = BTreeMap<PathBuf, usize>;

/// Writes the files, and removes those of an earlier export that this one does not have.
fn write(args: &ExportRollouts, made: &Rollouts) -> Result<Files> {
    let is_wanted = |layout, format| {
        let layout = match layout {
            Layout::Verl => RolloutLayout::Verl,
            Layout::Trl => RolloutLayout::Trl,
        };
        (args.layout.is_empty() || args.layout.contains(&layout))
            && (args.format.is_empty() || args.format.contains(&format))
    };
    let broken = |error: String| Failure::new("rollouts.not_made", error);
    let mut files = Files::new();
    for layout in Layout::ALL {
        for of_skill in SKILLS {
            for split in Split::ALL {
                let chosen: Vec<&Rollout> =
                    made.rows.iter().filter(|row| row.score.rubric.skill == of_skill && row.split == split).collect();
                let rows: Vec<Value> = chosen.iter().enumerate().map(|(index, row)| layout.row(index, row)).collect();
                let folder = Path::new(layout.as_str()).join(skill(of_skill));
                for format in [RolloutFormat::Jsonl, RolloutFormat::Parquet] {
                    let ending = if format == RolloutFormat::Jsonl { "jsonl" } else { "parquet" };
                    let name = folder.join(format!("{}.{ending}", split.as_str()));
                    // Trainers refuse a file without rows.
                    if rows.is_empty() || !is_wanted(layout, format) {
                        remove_file(&args.out.join(&name))?;
                        continue;
                    }
                    let bytes = match format {
                        RolloutFormat::Jsonl => jsonl::write(&rows).map_err(|error| broken(error.to_string()))?,
                        RolloutFormat::Parquet => {
                            parquet_file::write(layout.columns(), &rows).map_err(|error| broken(error.to_string()))?
                        }
                    };
                    write_file(&args.out.join(&name), &bytes)?;
                    files.insert(name, rows.len());
                }
            }
        }
    }
    Ok(files)
}

fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(not_written(path, &error)),
        _ => Ok(()),
    }
}

/// A file appears whole or not at all.
fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| not_written(path, &error);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut draft, bytes).map_err(failed)?;
    draft.as_file().sync_all().map_err(failed)?;
    draft.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn manifest(args: &ExportRollouts, made: &Rollouts, files: &Files) -> Value {
    let groups: BTreeSet<&str> =
        made.rows.iter().filter(|row| row.group.size > 1).map(|row| row.group.id.as_str()).collect();
    let tasks: Vec<Value> = made
        .tasks
        .iter()
        .map(|(task, split)| json!({ "name": task.name, "id": task.bundle, "fingerprint": task.fingerprint, "split": split }))
        .collect();
    let left: BTreeMap<&str, u32> = made.left.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    json!({
        "schema": 1,
        "formula": args.formula.as_str(),
        "splits": { "salt": args.salt, "test_share": args.test_share, "validation_share": args.validation_share,
                    "held_out": args.held_out },
        "with_scripted": args.with_scripted,
        "rows": made.rows.len(),
        "groups_of_several": groups.len(),
        "left_out": left,
        "tasks": tasks,
        "files": files,
    })
}

fn show(context: &Context, args: &ExportRollouts, made: &Rollouts, manifest: &Value) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(manifest);
    }
    let mut table = output.table(&["skill", "train", "validation", "test"]);
    for of_skill in SKILLS {
        let count =
            |split| made.rows.iter().filter(|row| row.score.rubric.skill == of_skill && row.split == split).count();
        let mut row = vec![output.cell(skill(of_skill), Tone::Plain)];
        row.extend(Split::ALL.map(|split| output.cell(count(split), Tone::Plain)));
        table.add_row(row);
    }
    output.text(&table.to_string())?;
    for (reason, count) in &made.left {
        output.text(&format!("left out: {count} ({})", reason.as_str()))?;
    }
    output.text(&format!("{}: {} rows of {} tasks", args.out.display(), made.rows.len(), made.tasks.len()))
}
