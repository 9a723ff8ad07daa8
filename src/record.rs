//! `--record DIR`: writes the replies of a campaign as files for `--model scripted`.

use std::path::Path;

use nightshift_client::Client;
use nightshift_engine::event::Event;
use nightshift_optimizer::model::Recorder;
use nightshift_optimizer::task_file::LIBRARY_FILE;
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::task::TaskBundle;

use crate::compose;
use crate::failure::{Failure, Result};

/// Pages of a run's log that are read.
const MAX_PAGES: u32 = 10_000;

/// Creates the folder and tests writing to it, so that errors appear before the campaign.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    let tried = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    tried.map(drop).map_err(|error| failed(folder, &error).hint("name a folder that can be written"))
}

fn failed(folder: &Path, what: &dyn std::fmt::Display) -> Failure {
    Failure::new("output.failed", format!("the recording cannot be written to {}: {what}", folder.display()))
}

/// Writes `DIR/TASK/` for each run: the task itself, and one file for each reply that was committed.
pub(crate) async fn record(client: &Client, runs: impl Iterator<Item = &RunSummary>, folder: &Path) -> Result<u64> {
    let recorder = Recorder::new(folder);
    let mut written = 0;
    for run in runs {
        let task = &run.digest.task;
        let bundle = client.get_artifact(&client.run(&run.id).await?.view.task).await?;
        write_task(&bundle, &folder.join(task))?;
        for (name, call) in calls(client, &run.id).await? {
            let reply = client.get_artifact(&call.reply).await?;
            recorder
                .write(task, &name, &String::from_utf8_lossy(&reply))
                .await
                .map_err(|error| Failure::new("output.failed", compose::describe(&error)))?;
            written += 1;
        }
    }
    Ok(written)
}

/// The committed calls of a run, each under the name that the scripted provider looks for.
async fn calls(client: &Client, run: &RunId) -> Result<Vec<(String, ModelCallSummary)>> {
    let mut found = Vec::new();
    let mut after = 0;
    for _ in 0..MAX_PAGES {
        let page = client.run_events(run, after, 0).await?;
        let Some(last) = page.events.last() else { return Ok(found) };
        after = last.seq;
        for event in page.events {
            let Ok(Event::StepCompleted { key, output }) = serde_json::from_value::<Event>(event.body) else {
                continue;
            };
            let Ok(output) = serde_json::from_value::<StepOutput>(output) else { continue };
            for call in output.calls() {
                found.push((call_name(&key, call.turn), call.clone()));
            }
        }
    }
    Ok(found)
}

/// Slashes as dots; the turn at the end from the second on.
fn call_name(key: &str, turn: u32) -> String {
    let name = key.replace('/', ".");
    if turn > 1 { format!("{name}.{turn}") } else { name }
}

/// The task beside its replies, so that the folder can be run as it is. Files that are there stay as they are.
fn write_task(bundle: &[u8], folder: &Path) -> Result<()> {
    let failed = |what: &dyn std::fmt::Display| failed(folder, what);
    let bundle: TaskBundle = serde_json::from_slice(bundle).map_err(|error| failed(&error))?;
    let spec = toml::to_string_pretty(&bundle.spec).map_err(|error| failed(&error))?;
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let Some(reference) = Path::new(&bundle.spec.reference).file_name() else {
        return Err(failed(&"the task names no reference"));
    };
    let library = bundle.library_source.iter().map(|text| (folder.join(LIBRARY_FILE), text));
    let files = [(folder.join("task.toml"), &spec), (folder.join(reference), &bundle.reference_source)];
    for (path, text) in files.into_iter().chain(library) {
        if !path.exists() {
            std::fs::write(&path, text).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_named_by_its_step_and_its_turn() {
        assert_eq!(call_name("subtask1/attempt2/write_code", 1), "subtask1.attempt2.write_code");
        assert_eq!(call_name("subtask1/attempt2/write_code", 2), "subtask1.attempt2.write_code.2");
    }
}
