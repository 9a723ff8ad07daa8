//! Pins.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use nightshift_engine::store::{Among, PageRequest};
use nightshift_protocol::api::{Page, Pin, SetPin};

use super::{AmongQuery, examine_label, examine_target, page};
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::{Body, Params};
use crate::shared::Shared;

/// Lists pins, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<AmongQuery>,
) -> Result<Json<Page<Pin>>, ApiFailure> {
    let (among, request) = query.split()?;
    let rows = shared.store.team.list_pins(&among, &request).await?;
    Ok(Json(page(&request, rows)))
}

/// Sets or removes a pin. Returns the target's pins: one, or none.
pub(crate) async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<SetPin>,
) -> Result<Json<Page<Pin>>, ApiFailure> {
    examine_label(&wish.label, "pin.invalid_label")?;
    examine_target(&shared, &wish.target).await?;
    let store = &shared.store.team;
    let campaign = store.campaign_of(&wish.target).await?;
    let result = if wish.pinned {
        let pin = Pin {
            target: wish.target.clone(),
            campaign,
            label: wish.label,
            author: caller.name,
            at: shared.clock.now(),
        };
        store.set_pin(pin).await
    } else {
        store.remove_pin(&wish.target).await
    };
    shared.store_health.note_error(&result);
    result?;
    let among = Among { target: Some(wish.target), ..Among::default() };
    let request = PageRequest { limit: 2, before: None };
    Ok(Json(page(&request, store.list_pins(&among, &request).await?)))
}
