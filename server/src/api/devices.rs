//! Quarantined devices: reports of workers, and decisions of people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::{QuarantineRecord, StoreError};
use nightshift_protocol::api::{Page, QuarantineView, QuarantinedDevice};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::machine::{Offers, Quarantine};

use crate::actor::Actor;
use crate::api::list::{PageQuery, derived_cursor};
use crate::dispatch::Dispatch;
use crate::error::ApiFailure;
use crate::extract::{Params, TextPath};
use crate::shared::Shared;

/// Maximum length of the code and reason of a quarantine, in characters.
const MAX_CODE_CHARS: usize = 64;
const MAX_REASON_CHARS: usize = 1_000;

/// Lists quarantined devices, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<QuarantineView>>, ApiFailure> {
    let records = shared.store.devices.list_quarantine().await?;
    let items: Vec<QuarantineView> = records.into_iter().map(view).collect();
    Ok(Json(query.of_all(items, |device| derived_cursor(&[&device.device]))?))
}

/// Requests that a device is tested and used again. Its worker gets the request with its next heartbeat.
pub(crate) async fn release(
    State(shared): State<Arc<Shared>>,
    TextPath(device): TextPath,
    actor: Actor,
) -> Result<(StatusCode, Json<QuarantineView>), ApiFailure> {
    let result = shared.store.devices.release_device(&device, Some(actor.name()), shared.clock.now()).await;
    shared.store_health.note_error(&result);
    let record = result?;
    tracing::info!(worker.id = %record.worker, device, by = actor.name(), "a quarantined device is to be tested again");
    Ok((StatusCode::OK, Json(view(record))))
}

fn view(record: QuarantineRecord) -> QuarantineView {
    QuarantineView {
        device: record.device,
        number: record.number,
        name: record.device_name,
        worker: record.worker,
        worker_name: record.worker_name,
        quarantine: Quarantine {
            incident: record.incident,
            code: record.code,
            reason: record.reason,
            since: Some(record.since),
        },
        released_at: record.released_at,
        released_by: record.released_by,
    }
}

/// Stores a worker's report about its quarantined devices. All of its other devices are healthy. Returns the
/// numbers of devices whose release was requested since.
pub(crate) async fn take_in_quarantine(
    dispatch: &Dispatch,
    worker: &WorkerId,
    name: &str,
    offers: &Arc<Offers>,
    quarantined: &[QuarantinedDevice],
) -> Result<Vec<u32>, StoreError> {
    let shared = &dispatch.shared;
    let known = shared.store.devices.list_quarantine().await?;
    let mut current = Offers::clone(offers);
    let (mut records, mut well, mut released) = (Vec::new(), Vec::new(), Vec::new());
    for device in &mut current.devices {
        let told = quarantined.iter().find(|told| told.device == device.index);
        let Some(uuid) = device.uuid.clone() else { continue };
        let before = known.iter().find(|record| record.device == uuid);
        let Some(told) = told else {
            device.quarantine = None;
            well.extend(before.map(|_| uuid));
            continue;
        };
        let is_same =
            |record: &QuarantineRecord| record.worker == *worker && record.incident == told.quarantine.incident;
        // A restarted worker that reports the same incident does not begin a new quarantine.
        let went_on = before.filter(|record| is_same(record) || record.worker != *worker);
        if before.is_some_and(|record| is_same(record) && record.released_at.is_some()) {
            released.push(device.index);
        }
        let quarantine = Quarantine {
            incident: told.quarantine.incident,
            code: cut(&told.quarantine.code, MAX_CODE_CHARS),
            reason: cut(&told.quarantine.reason, MAX_REASON_CHARS),
            since: Some(went_on.map_or_else(|| shared.clock.now(), |record| record.since)),
        };
        records.push(QuarantineRecord {
            device: uuid,
            worker: worker.clone(),
            worker_name: name.to_owned(),
            number: device.index,
            device_name: device.name.clone(),
            incident: quarantine.incident,
            code: quarantine.code.clone(),
            reason: quarantine.reason.clone(),
            since: quarantine.since.unwrap_or_else(|| shared.clock.now()),
            released_at: None,
            released_by: None,
        });
        device.quarantine = Some(quarantine);
    }
    let is_news = current != **offers
        || !well.is_empty()
        || records
            .iter()
            .any(|record| !known.iter().any(|known| known.device == record.device && known.worker == record.worker));
    if is_news {
        for record in &records {
            tracing::warn!(
                worker.id = %worker, device = %record.device, code = %record.code,
                "a device is quarantined: {}", record.reason
            );
        }
        let stored = serde_json::to_value(&current).map_err(|error| StoreError::Other(error.to_string()))?;
        let result = shared.store.devices.set_quarantine(worker, stored, records, well).await;
        shared.store_health.note(&result);
        result?;
        dispatch.worker_registry.set_offers(worker, Arc::new(current));
    }
    Ok(released)
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
