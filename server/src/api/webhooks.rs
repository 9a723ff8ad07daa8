//! Webhooks and their deliveries.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use nightshift_engine::store::{Creation, WebhookRecord};
use nightshift_protocol::api::{CreateWebhook, Delivery, Page, Webhook, WebhookCreated};
use nightshift_protocol::id::{DeliveryId, WebhookId};

use crate::actor::Actor;
use crate::api::idempotency::Creating;
use crate::api::list::PageQuery;
use crate::api::team;
use crate::error::ApiFailure;
use crate::extract::{IdPath, Params, PathId};
use crate::secret::new_webhook_secret;
use crate::shared::Shared;
use crate::webhook::is_private;

/// Maximum number of webhooks per server.
const MAX_WEBHOOKS: u32 = 50;
/// Maximum length of an address.
const MAX_URL_BYTES: usize = 2_000;
/// Permitted length of a secret that the caller provides.
const SECRET_CHARS: std::ops::RangeInclusive<usize> = 16..=200;

impl PathId for WebhookId {
    const NOT_FOUND: &'static str = "webhook.not_found";
}
impl PathId for DeliveryId {
    const NOT_FOUND: &'static str = "delivery.not_found";
}

/// Lists webhooks, newest first, without their secrets.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<Webhook>>, ApiFailure> {
    let items = shared.store.webhooks.list_webhooks().await?.into_iter().map(|webhook| webhook.view).collect();
    Ok(Json(query.of_all(items, |webhook: &Webhook| webhook.id.to_string())?))
}

/// Creates a webhook. Only the answer contains its secret.
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    actor: Actor,
    Creating { wish, creator }: Creating<CreateWebhook>,
) -> Result<(StatusCode, Json<WebhookCreated>), ApiFailure> {
    examine(&wish)?;
    if let Some(campaign) = &wish.campaign {
        shared.store.campaigns.load_campaign(campaign).await?;
    }
    let mut events = wish.events;
    events.sort_unstable();
    events.dedup();
    let webhook = Webhook {
        id: WebhookId::from_uuid(shared.new_uuid()),
        url: wish.url,
        events,
        campaign: wish.campaign,
        allow_private: wish.allow_private,
        author: actor.name().to_owned(),
        created_at: shared.clock.now(),
    };
    let secret = wish.secret.unwrap_or_else(|| new_webhook_secret(&*shared.random));
    let record = WebhookRecord { view: webhook.clone(), secret: secret.clone() };
    let creation = Creation::Webhook { webhook: record, limit: MAX_WEBHOOKS };
    let answer = creator.create(&shared, creation, WebhookCreated { webhook, secret }).await?;
    tracing::info!(webhook.id = %answer.1.webhook.id, by = actor.name(), "a webhook was created");
    Ok(answer)
}

/// Deletes a webhook with its deliveries.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<WebhookId>,
    actor: Actor,
) -> Result<StatusCode, ApiFailure> {
    let result = shared.store.webhooks.delete_webhook(&id).await;
    shared.store_health.note_error(&result);
    result?;
    tracing::info!(webhook.id = %id, by = actor.name(), "a webhook was deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the deliveries of a webhook, newest first.
pub(crate) async fn deliveries(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<WebhookId>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<Delivery>>, ApiFailure> {
    let request = query.request()?;
    let rows = shared.store.webhooks.list_deliveries(&id, &request).await?;
    Ok(Json(team::page(&request, rows)))
}

/// Restarts a delivery from its first attempt.
pub(crate) async fn repeat(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<DeliveryId>,
) -> Result<Json<Delivery>, ApiFailure> {
    let result = shared.store.webhooks.repeat_delivery(&id, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    Ok(Json(result?))
}

fn examine(wish: &CreateWebhook) -> Result<(), ApiFailure> {
    let invalid = |message: &str| Err(ApiFailure::bad("webhook.invalid", message));
    if wish.events.is_empty() {
        return invalid("name at least one event for the webhook");
    }
    let secret_fits = |secret: &String| SECRET_CHARS.contains(&secret.chars().count()) && !secret.contains('\0');
    if wish.secret.as_ref().is_some_and(|secret| !secret_fits(secret)) {
        return invalid("a secret has 16 to 200 characters; without one, the server makes it");
    }
    let url = match wish.url.parse::<reqwest::Url>() {
        Ok(url) if wish.url.len() <= MAX_URL_BYTES => url,
        _ => return invalid("the address is no URL, or longer than 2000 bytes"),
    };
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return invalid("the address begins with https:// or http:// and holds no user and no password");
    }
    let Some(host) = url.host_str() else { return invalid("the address names no host") };
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    let is_here = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    if !wish.allow_private && (is_here || host.parse::<IpAddr>().is_ok_and(is_private)) {
        return Err(ApiFailure::bad(
            "webhook.private_address",
            "the address is of this machine or of a private network: set `allow_private` if that is meant",
        ));
    }
    Ok(())
}
