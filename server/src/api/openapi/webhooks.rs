//! Webhooks.

use nightshift_protocol::api::{CreateWebhook, Delivery, Webhook, WebhookCreated};
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, Permission, get, post};
use super::schemas::Schemas;

const AREA: &str = "webhooks";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/webhooks", AREA, Permission::Administers, "Webhooks, newest first, without their secrets")
            .pages()
            .gives(200, schemas.page_of::<Webhook>()),
        post("/webhooks", AREA, Permission::Administers, "Creates a webhook; only this answer contains its secret")
            .creates()
            .takes(schemas.of::<CreateWebhook>())
            .gives(201, schemas.of::<WebhookCreated>())
            .fails(400, &["webhook.invalid", "webhook.private_address"])
            .fails(404, &["campaign.not_found"])
            .fails(409, &["webhook.too_many"]),
        Call::new(HttpMethod::Delete, "/webhooks/{id}", AREA, Permission::Administers, "Deletes a webhook")
            .gives_nothing(204, "It is deleted.")
            .fails(404, &["webhook.not_found"]),
        get("/webhooks/{id}/deliveries", AREA, Permission::Administers, "Deliveries of a webhook, newest first")
            .pages()
            .gives(200, schemas.page_of::<Delivery>())
            .fails(400, &["request.invalid_query"])
            .fails(404, &["webhook.not_found"]),
        post("/deliveries/{id}/repeat", AREA, Permission::Administers, "Restarts a delivery from its first attempt")
            .gives(200, schemas.of::<Delivery>())
            .fails(404, &["delivery.not_found"]),
    ]
}
