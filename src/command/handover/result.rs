//! The result of `nightshift handover run`: changed rows and new artifacts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{ArchiveStore as _, ArtifactStore as _};
use nightshift_optimizer::strategy::STATE_FORMAT;
use nightshift_protocol::api::CampaignDetail;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::handover::{Direction, HandoverHeader, UnpackedHandover, result_rows};
use nightshift_server::SystemClock;
use serde_json::json;

use super::off_the_runtime;
use crate::compose::Local;
use crate::context::Context;
use crate::failure::Result;
use crate::handover_file::{self, Content};
use crate::output::printable;
use crate::present;

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The remaining steps need an agent, a person or a larger budget.
    Waits,
    /// Every run is over.
    Ended,
    /// The time was over.
    TimeOver,
    /// A signal came.
    Interrupted,
}

/// The result that was written.
pub(super) struct Written {
    header: HandoverHeader,
    rows: usize,
    artifacts: usize,
    bytes: u64,
}

/// Writes the rows that differ from those that came, and the artifacts that did not come.
pub(super) async fn write(local: &Local, out: &Path, handover: UnpackedHandover, key: String) -> Result<Written> {
    let store = local.store();
    let UnpackedHandover { header, archive, .. } = handover;
    let exported = store.export_campaign(&header.campaign).await?;
    let rows = result_rows(&archive.rows, exported.rows)?;
    let there: BTreeSet<ArtifactHash> = archive.artifacts.into_iter().chain(header.left_out).collect();
    let mut artifacts = Vec::new();
    for hash in exported.artifacts {
        // A row can name what a worker never sent.
        if !there.contains(&hash) && store.artifact_progress(&hash).await?.is_some_and(|progress| progress.complete) {
            artifacts.push(hash);
        }
    }
    let header = HandoverHeader {
        direction: Direction::Back,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        state_format: STATE_FORMAT,
        key: None,
        runs: Vec::new(),
        left_out: there.into_iter().collect(),
        ..header
    };
    let content = Content { header: header.clone(), key, at: SystemClock.now(), rows, artifacts };
    let counted = (content.rows.len(), content.artifacts.len());
    let (kept, runtime, out) = (Arc::clone(store), tokio::runtime::Handle::current(), PathBuf::from(out));
    let bytes = off_the_runtime(move || {
        handover_file::write(&out, &content, |hash| Ok(runtime.block_on(kept.get_artifact(hash))?))
    })
    .await?;
    Ok(Written { header, rows: counted.0, artifacts: counted.1, bytes })
}

/// Says what was written, and where the runs stand.
pub(super) fn report(
    context: &Context,
    out: &Path,
    written: &Written,
    until: Until,
    detail: &CampaignDetail,
) -> Result<()> {
    let Written { header, rows, artifacts, bytes } = written;
    let output = context.output;
    if output.is_json() {
        let until = match until {
            Until::Waits => "waits",
            Until::Ended => "ended",
            Until::TimeOver => "time_over",
            Until::Interrupted => "interrupted",
        };
        return output.json(&json!({
            "file": out,
            "handover": header.handover,
            "campaign": header.campaign,
            "until": until,
            "runs": detail.runs,
            "rows": rows,
            "artifacts": artifacts,
            "bytes": bytes,
        }));
    }
    for run in &detail.runs {
        let (task, activity) = (&run.digest.task, &run.digest.activity);
        let stands = if run.status.is_final() { run.status.as_str() } else { activity.as_str() };
        output.text(&printable(&format!("{task:20} {stands}")))?;
    }
    let (rows, artifacts) = (present::count(*rows, "row"), present::count(*artifacts, "artifact"));
    output.text(&format!("{}: {rows}, {artifacts}, {bytes} bytes", out.display()))?;
    output.note(match until {
        Until::Waits => "what is left waits for agents, people or a larger budget",
        Until::Ended => "every run is over",
        Until::TimeOver => "the time is over: the same command again goes on, and replaces the result",
        Until::Interrupted => "stopped: the same command again goes on, and replaces the result",
    });
    output.note(&format!("bring the result back with `nightshift handover finish {}`", out.display()));
    Ok(())
}
