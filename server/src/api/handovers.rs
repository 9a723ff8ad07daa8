//! Hand-overs: a campaign is checked out as a file, and the results of another machine are merged once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body as RequestBody;
use axum::extract::State;
use axum::response::Response;
use nightshift_engine::store::{HandoverRecord, NewHandover, ReturnedHandover};
use nightshift_protocol::api::{
    BeginHandover, HandoverDetail, HandoverFile, HandoverFinished, HandoverState, MAX_HANDOVER_WAIT_S,
};
use nightshift_protocol::handover::{Direction, HANDOVER_FORMAT, HANDOVER_VERSION, HandoverHeader, HandoverReader};
use nightshift_protocol::id::{CampaignId, HandoverId};
use tokio::time::Instant;

use crate::actor::Actor;
use crate::api::archive::{self, MAX_ARCHIVE_BYTES};
use crate::api::handover_admission::{conflict, examine};
use crate::api::refused_file::refused;
use crate::api::unpack::Unpacker;
use crate::attempt_index::Index;
use crate::driving::Driving;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};
use crate::live::Live;
use crate::secret::new_secret;
use crate::shared::Shared;

/// Time between two checks of steps in flight.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Pauses the runs of a campaign, waits for steps in flight, and checks it out.
pub(crate) async fn begin(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(live): State<Arc<Live>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(BeginHandover { wait_s }): Body<BeginHandover>,
) -> Result<Json<HandoverDetail>, ApiFailure> {
    if wait_s > MAX_HANDOVER_WAIT_S {
        return Err(ApiFailure::bad("request.invalid", format!("`wait_s` is at most {MAX_HANDOVER_WAIT_S}")));
    }
    let store = &shared.store.handovers;
    let new = NewHandover {
        id: HandoverId::from_uuid(shared.new_uuid()),
        campaign: id.clone(),
        key: blake3::hash(new_secret(&*shared.random).as_bytes()).to_hex().to_string(),
        by: actor.name().to_owned(),
        at: shared.clock.now(),
    };
    let result = store.begin_handover(new).await;
    shared.store_health.note_error(&result);
    let handover = result?;
    wake_runs(&driving, &live, &handover);
    let until = Instant::now() + Duration::from_secs(wait_s.into());
    loop {
        // If no server drives runs, waiting for steps in flight is useless.
        let is_still = shared.config.sole && !shared.config.drives;
        let by_force = is_still || Instant::now() >= until;
        let result = store.check_out(&handover.id, by_force, shared.clock.now()).await;
        shared.store_health.note_error(&result);
        let now = result?;
        if now.state != HandoverState::Leaving {
            // The hand-over may have been cancelled while this call waited for steps.
            now.takes("")?;
            tracing::info!(campaign.id = %id, handover.id = %now.id, by = actor.name(), "a campaign is handed over");
            wake_runs(&driving, &live, &now);
            return Ok(Json(now.detail()));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Returns the file of the hand-over of the campaign.
///
/// The runs do not change during a hand-over, so each file contains the same ones. Limits, notes and the cost of late
/// model answers may differ.
pub(crate) async fn file(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(HandoverFile { without }): Body<HandoverFile>,
) -> Result<Response, ApiFailure> {
    shared.store.campaigns.load_campaign(&id).await?;
    let handover = shared.store.handovers.open_handovers(Some(&id)).await?.pop();
    let handover = handover.ok_or_else(|| conflict("handover.none", format!("{id} is not handed over")))?;
    if handover.state != HandoverState::Out {
        let message = format!("steps of {id} are still in flight: hand it over again to wait for them");
        return Err(conflict("handover.not_out", message));
    }
    let (spooled, manifest, left_out) = archive::collect(&shared, &id, &without.into_iter().collect()).await?;
    let header = HandoverHeader {
        format: HANDOVER_FORMAT.to_owned(),
        version: HANDOVER_VERSION,
        handover: handover.id.clone(),
        campaign: id.clone(),
        direction: Direction::Out,
        server: shared.config.name.clone(),
        release: shared.config.version.clone(),
        state_format: shared.state_format,
        key: Some(handover.key.clone()),
        runs: handover.runs,
        left_out,
    };
    let digest = manifest.digest.clone();
    let first = header.first_lines(manifest, &handover.key).map_err(|error| refused(&error))?;
    tracing::info!(campaign.id = %id, handover.id = %handover.id, by = actor.name(), "a hand-over is written");
    Ok(archive::answer(shared, spooled, first, digest, &format!("{}.nightshift.zst", handover.id)))
}

/// Cancels a hand-over without results.
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(live): State<Arc<Live>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
) -> Result<Json<HandoverDetail>, ApiFailure> {
    let result = shared.store.handovers.cancel_handover(&id, actor.name(), shared.clock.now()).await;
    shared.store_health.note_error(&result);
    let handover = result?;
    wake_runs(&driving, &live, &handover);
    Ok(Json(handover.detail()))
}

/// Merges the results of another machine.
///
/// Seal and hand-over are checked before the first artifact is stored. Artifacts of a file that is refused later stay
/// unreferenced and are pruned.
pub(crate) async fn finish(
    State(shared): State<Arc<Shared>>,
    State(driving): State<Arc<Driving>>,
    State(live): State<Arc<Live>>,
    State(index): State<Arc<Index>>,
    actor: Actor,
    body: RequestBody,
) -> Result<Json<HandoverFinished>, ApiFailure> {
    let unpacker = Unpacker::<HandoverReader>::new(&shared, MAX_ARCHIVE_BYTES);
    let returned = unpacker.unpack(body).await.map_err(archive::not_unpacked)?;
    let digest = returned.digest();
    // A file without artifacts was not authenticated during the upload.
    examine(&shared, &returned.header, &digest, |key| returned.authenticate(key)).await?;
    let mut artifacts = returned.header.left_out;
    artifacts.extend(returned.archive.artifacts);
    let result = shared
        .store
        .handovers
        .finish_handover(ReturnedHandover {
            id: returned.header.handover,
            digest,
            rows: returned.archive.rows,
            artifacts,
            by: actor.name().to_owned(),
            at: shared.clock.now(),
        })
        .await;
    shared.store_health.note_error(&result);
    let finished = result?;
    index.inbox.look();
    wake_runs(&driving, &live, &finished.handover);
    let (handover, repeated, runs) = (finished.handover.detail(), finished.repeated, finished.runs);
    tracing::info!(
        campaign.id = %handover.campaign, handover.id = %handover.id, repeated, by = actor.name(),
        "a hand-over was finished"
    );
    Ok(Json(HandoverFinished { handover, repeated, runs }))
}

/// Notifies the drivers and live views of these runs.
fn wake_runs(driving: &Driving, live: &Live, handover: &HandoverRecord) {
    for run in &handover.runs {
        driving.wake.run_changed(run);
    }
    live.campaign_touched(&handover.campaign);
}
