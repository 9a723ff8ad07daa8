//! Hand-overs: a campaign is checked out as a file, and the results of another machine are taken in once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body as RequestBody;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use nightshift_engine::store::{HandoverRecord, HandoverStore, NewHandover, ReturnedHandover, StoreError};
use nightshift_protocol::api::{
    BeginHandover, HandoverDetail, HandoverFile, HandoverFinished, HandoverState, MAX_HANDOVER_WAIT_S,
};
use nightshift_protocol::handover::{
    Direction, HANDOVER_FORMAT, HANDOVER_VERSION, HandoverHeader, HandoverReader, UnpackedHandover,
};
use nightshift_protocol::id::{CampaignId, HandoverId};
use tokio::time::Instant;

use crate::access::new_secret;
use crate::actor::Actor;
use crate::api::archive::{self, MAX_ARCHIVE_BYTES};
use crate::api::unpack::Unpacker;
use crate::app::App;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};

/// Time between two looks at steps in flight.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Pauses the runs of a campaign, waits for steps in flight, and checks it out.
pub(crate) async fn begin(
    State(app): State<Arc<App>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(BeginHandover { wait_s }): Body<BeginHandover>,
) -> Result<Json<HandoverDetail>, ApiFailure> {
    if wait_s > MAX_HANDOVER_WAIT_S {
        return Err(ApiFailure::bad("request.invalid", format!("`wait_s` is at most {MAX_HANDOVER_WAIT_S}")));
    }
    let store = store(&app)?;
    let new = NewHandover {
        id: HandoverId::from_uuid(app.new_uuid()),
        campaign: id.clone(),
        key: blake3::hash(new_secret(&*app.random).as_bytes()).to_hex().to_string(),
        by: actor.name().to_owned(),
        at: app.clock.now(),
    };
    let result = store.begin_handover(new).await;
    app.trouble.note_error(&result);
    let handover = result?;
    wake_runs(&app, &handover);
    let until = Instant::now() + Duration::from_secs(wait_s.into());
    loop {
        // Where nothing drives runs, no step comes to its end.
        let by_force = !app.config.drives || Instant::now() >= until;
        let result = store.check_out(&handover.id, by_force, app.clock.now()).await;
        app.trouble.note_error(&result);
        let now = result?;
        if now.state != HandoverState::Leaving {
            tracing::info!(campaign.id = %id, handover.id = %now.id, by = actor.name(), "a campaign is handed over");
            wake_runs(&app, &now);
            return Ok(Json(now.detail()));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// The file of the hand-over that has the campaign: always the same content, because nothing changes it meanwhile.
pub(crate) async fn file(
    State(app): State<Arc<App>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(HandoverFile { without }): Body<HandoverFile>,
) -> Result<Response, ApiFailure> {
    app.store.load_campaign(&id).await?;
    let handover = store(&app)?.open_handovers(Some(&id)).await?.pop();
    let handover = handover.ok_or_else(|| conflict("handover.none", format!("{id} is not handed over")))?;
    if handover.state != HandoverState::Out {
        let message = format!("steps of {id} are still in flight: hand it over again to wait for them");
        return Err(conflict("handover.not_out", message));
    }
    let left_out: BTreeSet<_> = without.into_iter().collect();
    let (spooled, manifest) = archive::collect(&app, &id, &left_out).await?;
    let header = HandoverHeader {
        format: HANDOVER_FORMAT.to_owned(),
        version: HANDOVER_VERSION,
        handover: handover.id.clone(),
        campaign: id.clone(),
        direction: Direction::Out,
        server: app.config.name.clone(),
        release: app.config.version.clone(),
        state_format: app.state_format,
        key: Some(handover.key.clone()),
        runs: handover.runs,
        left_out: left_out.into_iter().collect(),
    };
    let digest = manifest.digest.clone();
    let first = header.first_lines(manifest, &handover.key).map_err(|error| archive::refused(&error))?;
    tracing::info!(campaign.id = %id, handover.id = %handover.id, by = actor.name(), "a hand-over is written");
    Ok(archive::answer(app, spooled, first, digest, &format!("{}.nightshift.zst", handover.id)))
}

/// Takes a campaign back without results.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
) -> Result<Json<HandoverDetail>, ApiFailure> {
    let result = store(&app)?.cancel_handover(&id, actor.name(), app.clock.now()).await;
    app.trouble.note_error(&result);
    let handover = result?;
    wake_runs(&app, &handover);
    Ok(Json(handover.detail()))
}

/// Takes the results of another machine in. Artifacts of a file that is refused are named by nothing and go with the next
/// prune.
pub(crate) async fn finish(
    State(app): State<Arc<App>>,
    actor: Actor,
    body: RequestBody,
) -> Result<Json<HandoverFinished>, ApiFailure> {
    let unpacker = Unpacker::<HandoverReader>::new(&app, MAX_ARCHIVE_BYTES);
    let returned = unpacker.unpack(body).await.map_err(archive::not_unpacked)?;
    returned.header.examine(Direction::Back, app.state_format).map_err(|error| archive::refused(&error))?;
    let store = store(&app)?;
    let handover = match store.load_handover(&returned.header.handover).await {
        Err(StoreError::NotFound { .. }) => return Err(unknown(&app, &returned)),
        other => other?,
    };
    returned.authenticate(&handover.key).map_err(|error| archive::refused(&error))?;
    let digest = returned.digest();
    let result = store
        .finish_handover(ReturnedHandover {
            id: handover.id,
            digest,
            rows: returned.archive.rows,
            by: actor.name().to_owned(),
            at: app.clock.now(),
        })
        .await;
    app.trouble.note_error(&result);
    let finished = result?;
    app.indexing.look();
    wake_runs(&app, &finished.handover);
    let (handover, repeated, runs) = (finished.handover.detail(), finished.repeated, finished.runs);
    tracing::info!(
        campaign.id = %handover.campaign, handover.id = %handover.id, repeated, by = actor.name(),
        "a hand-over was finished"
    );
    Ok(Json(HandoverFinished { handover, repeated, runs }))
}

fn unknown(app: &App, returned: &UnpackedHandover) -> ApiFailure {
    let (id, server) = (&returned.header.handover, &returned.header.server);
    let message = format!(
        "this server ({}) knows no hand-over {id}: bring the file to the server that made it, which is called {server}",
        app.config.name
    );
    conflict("handover.unknown", message)
}

fn conflict(code: &str, message: String) -> ApiFailure {
    ApiFailure::new(StatusCode::CONFLICT, code, message)
}

/// Has everything that shows or drives these runs look again.
fn wake_runs(app: &App, handover: &HandoverRecord) {
    for run in &handover.runs {
        app.wake.run_changed(run);
    }
    app.live.campaign_touched(&handover.campaign);
}

fn store(app: &App) -> Result<&dyn HandoverStore, ApiFailure> {
    let missing = || ApiFailure::internal("store.failed", "this server's store knows no hand-overs");
    app.store.handovers().ok_or_else(missing)
}
