//! A campaign or a run with all its records and artifacts as one JSON object, for people and other programs.
//!
//! The schema is documented in `docs/reference/cli.md`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nightshift_client::Client;
use nightshift_protocol::api::{CampaignDetail, EventView, RunDetail, StepView};
use nightshift_protocol::artifact::ArtifactHash;
use serde::Serialize;
use serde_json::{Value, json};

use super::{CampaignExport, not_written};
use crate::context::Context;
use crate::failure::Result;
use crate::present;
use crate::resolve::Target;

/// Name of the format, at the beginning of every archive.
const FORMAT: &str = "nightshift-archive";
/// Version of the format.
const VERSION: u32 = 1;
/// Fields whose text is the hash of an artifact. Other hashes (of builds, toolchains, requests) name nothing stored.
const ARTIFACT_FIELDS: [&str; 13] = [
    "bundle",
    "library",
    "log",
    "parent_source",
    "prompt",
    "reference_library",
    "reply",
    "scripted_replies",
    "source",
    "task",
    "truth_library",
    "disassembly",
    "artifact",
];
/// Pages of a run's log that are read.
const MAX_PAGES: u32 = 100_000;

#[derive(Serialize)]
struct ArchivedRun {
    detail: RunDetail,
    steps: Vec<StepView>,
    events: Vec<EventView>,
}

struct Written {
    artifacts: u64,
    missing: Vec<ArtifactHash>,
}

pub(super) async fn export(context: &Context, client: &Client, target: &Target, args: &CampaignExport) -> Result<()> {
    let (campaign, runs) = collect(client, target).await?;
    let written = write(client, &campaign, &runs, &args.out).await?;
    let output = context.output;
    for hash in &written.missing {
        output.note(&format!("the artifact {hash} is named, but not stored; the file lists it as missing"));
    }
    if output.is_json() {
        return output.json(&json!({
            "file": args.out,
            "format": "json",
            "campaign": campaign.summary.id,
            "runs": runs.len(),
            "artifacts": written.artifacts,
            "missing": written.missing,
        }));
    }
    let (runs, artifacts) = (present::count(runs.len(), "run"), present::count(written.artifacts, "artifact"));
    output.text(&format!("{}: {runs}, {artifacts}", args.out.display()))
}

async fn collect(client: &Client, target: &Target) -> Result<(CampaignDetail, Vec<ArchivedRun>)> {
    let (campaign, ids) = match target {
        Target::Campaign(id) => {
            let campaign = client.campaign(id).await?;
            let ids = campaign.runs.iter().map(|run| run.id.clone()).collect();
            (campaign, ids)
        }
        Target::Run(id) => {
            let detail = client.run(id).await?;
            (client.campaign(&detail.summary.campaign).await?, vec![id.clone()])
        }
    };
    let mut runs = Vec::with_capacity(ids.len());
    for id in ids {
        let detail = client.run(&id).await?;
        let steps = client.run_steps(&id).await?;
        let mut events: Vec<EventView> = Vec::new();
        for _ in 0..MAX_PAGES {
            let after = events.last().map_or(0, |event| event.seq);
            let page = client.run_events(&id, after, 0).await?;
            if page.events.is_empty() {
                break;
            }
            events.extend(page.events);
        }
        runs.push(ArchivedRun { detail, steps, events });
    }
    Ok((campaign, runs))
}

/// Writes beside the file and renames, so that there is a whole file or none. Artifacts are written one by one.
async fn write(client: &Client, campaign: &CampaignDetail, runs: &[ArchivedRun], out: &Path) -> Result<Written> {
    let failed = |error: std::io::Error| not_written(out, &error);
    let head = json!({ "campaign": campaign, "runs": runs });
    let mut hashes = BTreeSet::new();
    find_artifacts(&head, &mut hashes);
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut draft = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let mut written = Written { artifacts: 0, missing: Vec::new() };
    {
        let mut file = std::io::BufWriter::new(&mut draft);
        write!(file, "{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\"campaign\":").map_err(failed)?;
        serde_json::to_writer(&mut file, campaign).map_err(|error| failed(error.into()))?;
        write!(file, ",\"runs\":").map_err(failed)?;
        serde_json::to_writer(&mut file, runs).map_err(|error| failed(error.into()))?;
        write!(file, ",\"artifacts\":{{").map_err(failed)?;
        for hash in hashes {
            match client.get_artifact(&hash).await {
                Ok(bytes) => {
                    let comma = if written.artifacts > 0 { "," } else { "" };
                    write!(file, "{comma}\n\"{hash}\":\"{}\"", BASE64_STANDARD.encode(bytes)).map_err(failed)?;
                    written.artifacts += 1;
                }
                Err(error) if error.code() == "artifact.not_found" => written.missing.push(hash),
                Err(error) => return Err(error.into()),
            }
        }
        write!(file, "}},\"missing\":").map_err(failed)?;
        serde_json::to_writer(&mut file, &written.missing).map_err(|error| failed(error.into()))?;
        writeln!(file, "}}").map_err(failed)?;
        file.flush().map_err(failed)?;
    }
    draft.as_file().sync_all().map_err(failed)?;
    draft.persist(out).map_err(|error| failed(error.error))?;
    Ok(written)
}

fn find_artifacts(value: &Value, found: &mut BTreeSet<ArtifactHash>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| find_artifacts(item, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if ARTIFACT_FIELDS.contains(&name.as_str()) => found.extend(text.parse()),
                    other => find_artifacts(other, found),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_found_by_the_fields_that_name_them() {
        let hash = ArtifactHash::of(b"x");
        let other = ArtifactHash::of(b"y");
        let value = json!({ "runs": [{ "attempt": { "source": hash, "build_key": other, "task": "row_softmax" } }] });
        let mut found = BTreeSet::new();
        find_artifacts(&value, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [hash]);
    }
}
