//! Webhooks and their deliveries.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_client::ClientError;
use nightshift_protocol::api::{Delivery, DeliveryStatus, Page as Rows, Webhook, WebhookEvent};
use nightshift_protocol::id::WebhookId;

use crate::address::Address;
use crate::failure::{PageError, needs_role};
use crate::form::Form;
use crate::format::{when, words};
use crate::shell::{Page, Section};
use crate::visitor::Visitor;

/// Deliveries of one page.
const PER_PAGE: u32 = 50;

/// `GET /webhooks`, with `?of=ID` the deliveries of one.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let hooks = match visitor.client.webhooks().await {
        Ok(hooks) => hooks,
        Err(error) => return refused(visitor, error),
    };
    let Some(id) = address.get("of") else { return Ok(page(&hooks)) };
    let id: WebhookId = id.parse().map_err(|_| PageError::not_found("This webhook"))?;
    let hook = hooks.iter().find(|hook| hook.id == id).ok_or_else(|| PageError::not_found("This webhook"))?;
    let found = visitor.client.deliveries(&id, Some(PER_PAGE), address.get("before")).await?;
    Ok(deliveries_page(&address, hook, &found))
}

/// Renders the page without webhooks, and names the role that may see them.
fn refused(visitor: &Visitor, error: ClientError) -> Result<Page, PageError> {
    let reason = needs_role(visitor, &error, "Webhooks are seen and made by administrators.").ok_or(error)?;
    Ok(Page::new("Webhooks", view! { <h1>"Webhooks"</h1>{reason} }).section(Section::Webhooks))
}

fn page(hooks: &[Webhook]) -> Page {
    let rows = hooks.iter().map(row).collect::<Vec<_>>();
    let none = rows.is_empty().then(|| view! { <p class="empty">"No address is told anything yet."</p> });
    Page::new(
        "Webhooks",
        view! {
            <h1>"Webhooks"</h1>
            <p class="quiet">
                "Addresses that are told what happens, signed with a secret that both sides know, and told again until they take it."
            </p>
            {none}
            <ul class="plain views">{rows}</ul>
            {create()}
        },
    )
    .section(Section::Webhooks)
}

fn row(hook: &Webhook) -> AnyView {
    let deliveries = Address::parse("/webhooks").with("of", Some(hook.id.as_str())).href();
    let events =
        hook.events.iter().map(|event| view! { <li class="tag">{words(event.as_str())}</li> }).collect::<Vec<_>>();
    let campaign = hook.campaign.as_ref().map(|campaign| {
        let href = format!("/campaigns/{campaign}");
        view! { ", of "<a href=href>"one campaign"</a> }
    });
    let delete = Form::new("DELETE", &format!("/webhooks/{}", hook.id), "It is deleted.").asking(
        "Delete it",
        "Delete this webhook, with what it was told and what it is still to be told?",
        "Yes, delete it",
    );
    view! {
        <li data-row="" data-key=hook.id.to_string()>
            <p><a href=deliveries>{hook.url.clone()}</a>{campaign}</p>
            <ul class="chips" aria-label="Told of">{events}</ul>
            <p class="quiet">"made by "{hook.author.clone()}", "{when(hook.created_at)}</p>
            {delete}
        </li>
    }
    .into_any()
}

fn create() -> AnyView {
    let events = WebhookEvent::ALL
        .into_iter()
        .map(|event| {
            let name = event.as_str();
            view! {
                <label class="ticked">
                    <input type="checkbox" name="events" data-kind="list" value=name />" "{words(name)}
                </label>
            }
        })
        .collect::<Vec<_>>();
    let fields = view! {
        <h2 id="create">"Have an address told"</h2>
        <label>"Address"<input type="url" name="url" required=true maxlength="2000" placeholder="https://" /></label>
        <fieldset><legend>"Of"</legend>{events}</fieldset>
        <label>"Only of the campaign (its id)"<input type="text" name="campaign" maxlength="64" /></label>
        <label>
            "Secret that signs, 16 to 200 characters (the server makes one without it)"
            <input type="password" name="secret" autocomplete="new-password" minlength="16" maxlength="200" />
        </label>
        <label class="ticked">
            <input type="checkbox" name="allow_private" data-kind="flag" />" it may be an address of this machine or of a private network"
        </label>
        <button type="submit" class="strong">"Make the webhook"</button>
    };
    Form::new("POST", "/webhooks", "It is made. What signs its messages is shown this once: ")
        .shows("secret")
        .around(fields.into_any())
}

fn deliveries_page(address: &Address, hook: &Webhook, found: &Rows<Delivery>) -> Page {
    let rows = found.items.iter().map(delivery).collect::<Vec<_>>();
    let none = rows.is_empty().then(|| view! { <p class="empty">"There are no deliveries yet."</p> });
    let first = address.get("before").is_some().then(|| address.with("before", None).href());
    let older = found.next.as_deref().map(|cursor| address.with("before", Some(cursor)).href());
    Page::new(
        "Deliveries",
        view! {
            <h1>"Deliveries"</h1>
            <p class="quiet">"To "{hook.url.clone()}", the newest first."</p>
            {none}
            <ul class="plain views">{rows}</ul>
            <nav class="pages" aria-label="Pages">
                {first.map(|href| view! { <a href=href>"Newest"</a> })}
                {older.map(|href| view! { <a rel="next" href=href>"Older"</a> })}
            </nav>
        },
    )
    .section(Section::Webhooks)
    .crumb("Webhooks", "/webhooks")
}

fn delivery(delivery: &Delivery) -> AnyView {
    let message = &delivery.message;
    let class = match delivery.status {
        DeliveryStatus::Pending => "tag running",
        DeliveryStatus::Delivered => "tag completed",
        DeliveryStatus::GivenUp => "tag failed",
    };
    let (href, about) = match (&message.run, &message.task) {
        (Some(run), task) => (format!("/runs/{run}"), task.clone().unwrap_or_else(|| run.to_string())),
        (None, _) => (format!("/campaigns/{}", message.campaign), message.campaign_name.clone()),
    };
    let tries = if delivery.tries == 1 { "tried once".to_owned() } else { format!("tried {} times", delivery.tries) };
    let next = delivery.next_at.map(|at| view! { ", next "{when(at)} });
    let problem = delivery.problem.clone().map(|problem| view! { <p class="problem">{problem}</p> });
    let repeat = (delivery.status != DeliveryStatus::Pending).then(|| {
        Form::new("POST", &format!("/deliveries/{}/repeat", delivery.id), "It is told again.").button("Tell it again")
    });
    view! {
        <li data-row="" data-key=delivery.id.to_string()>
            <p>
                <span class=class>{words(delivery.status.as_str())}</span>" "{words(message.event.as_str())}": "
                <a href=href>{about}</a>" "<span class="quiet">{when(message.at)}", "{tries}{next}</span>
            </p>
            {problem}
            {repeat}
        </li>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_values_are_escaped_and_a_pending_delivery_offers_no_repeat() {
        let hook: Webhook = serde_json::from_value(serde_json::json!({
            "id": "whk_0123456789abcdef0123456789abcdef", "url": "https://example.org/?<script>", "events": ["new_best"],
            "author": "ada", "created_at": 0,
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        let html = Owner::new().with(|| row(&hook).to_html());
        assert!(!html.contains("<script") && html.contains("DELETE /api/v1/webhooks/whk_"), "{html}");
        let told = |status: &str| -> Delivery {
            serde_json::from_value(serde_json::json!({
                "id": "dlv_0123456789abcdef0123456789abcdef", "webhook": "whk_0123456789abcdef0123456789abcdef",
                "status": status, "tries": 2, "problem": "503 <i>",
                "message": {
                    "version": 1, "event": "campaign_finished", "at": 0,
                    "campaign": "cmp_0123456789abcdef0123456789abcdef", "campaign_name": "night",
                },
            }))
            .unwrap_or_else(|error| panic!("{error}"))
        };
        let html = |status: &str| Owner::new().with(|| delivery(&told(status)).to_html());
        assert!(html("given_up").contains("/repeat") && html("given_up").contains("503 &lt;i&gt;"));
        assert!(!html("pending").contains("/repeat"));
    }
}
