//! Webhooks: addresses that receive events, `/webhooks`.

use serde::{Deserialize, Serialize};

use crate::id::{CampaignId, DeliveryId, RunId, WebhookId};
use crate::measurement::Interval;
use crate::time::TimestampMs;

/// Header with the signature of a delivery: `t=SECONDS,v1=HEX`, an HMAC-SHA256 over the seconds, a dot, and the body.
pub const SIGNATURE_HEADER: &str = "x-nightshift-signature";
/// Header with the id of a delivery: the same for every try.
pub const DELIVERY_HEADER: &str = "x-nightshift-delivery";
/// Header with the event of a delivery.
pub const EVENT_HEADER: &str = "x-nightshift-event";

/// An event that an address can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WebhookEvent {
    /// A run has a new best attempt, confirmed.
    NewBest,
    /// A run ended by a decision of its strategy.
    RunFinished,
    /// A run ended because a step cannot succeed.
    RunFailed,
    /// Every run of a campaign is over.
    CampaignFinished,
    /// Nine tenths of a budget are used or reserved.
    BudgetNearlyUsed,
}

impl WebhookEvent {
    /// Every event.
    pub const ALL: [Self; 5] =
        [Self::NewBest, Self::RunFinished, Self::RunFailed, Self::CampaignFinished, Self::BudgetNearlyUsed];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewBest => "new_best",
            Self::RunFinished => "run_finished",
            Self::RunFailed => "run_failed",
            Self::CampaignFinished => "campaign_finished",
            Self::BudgetNearlyUsed => "budget_nearly_used",
        }
    }

    /// The event of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == text)
    }
}

/// An address that receives events. Its secret is shown once, when the webhook is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Webhook {
    /// Id.
    pub id: WebhookId,
    /// The address.
    pub url: String,
    /// The events that it receives.
    pub events: Vec<WebhookEvent>,
    /// Only of this campaign; of all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignId>,
    /// Whether the address may be one of this machine or of a private network.
    #[serde(default)]
    pub allow_private: bool,
    /// Name of the creator's token.
    pub author: String,
    /// When it was created. It receives no earlier events.
    pub created_at: TimestampMs,
}

/// `POST /webhooks`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateWebhook {
    /// The address, `https://…` or `http://…`.
    pub url: String,
    /// Secret that signs the deliveries, 16 to 200 characters. Without it, the server generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The events that it receives.
    pub events: Vec<WebhookEvent>,
    /// Only of this campaign; of all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<CampaignId>,
    /// Whether the address may be one of this machine or of a private network.
    #[serde(default)]
    pub allow_private: bool,
}

impl std::fmt::Debug for CreateWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateWebhook").field("url", &self.url).field("events", &self.events).finish_non_exhaustive()
    }
}

/// Answer to `POST /webhooks`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookCreated {
    /// As in a list.
    pub webhook: Webhook,
    /// Secret that signs the deliveries. Only this answer contains it.
    pub secret: String,
}

impl std::fmt::Debug for WebhookCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookCreated").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// The server tries it now or later.
    Pending,
    /// The address accepted it.
    Delivered,
    /// The address did not accept it, and the server tries it no more.
    GivenUp,
}

impl DeliveryStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::GivenUp];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::GivenUp => "given_up",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// The delivery of one event to one address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// Id, by which receivers recognize a second copy.
    pub id: DeliveryId,
    /// Who is told.
    pub webhook: WebhookId,
    /// Where it stands.
    pub status: DeliveryStatus,
    /// How often it was tried.
    pub tries: u32,
    /// When it is tried next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<TimestampMs>,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The message that is sent.
    pub message: WebhookMessage,
}

/// The body of a delivery: ids, names and numbers, nothing that a program or a model wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookMessage {
    /// Version of this form: 1.
    pub version: u32,
    /// What happened.
    pub event: WebhookEvent,
    /// When that was noticed.
    pub at: TimestampMs,
    /// The campaign.
    pub campaign: CampaignId,
    /// Its name.
    pub campaign_name: String,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The task of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Number of the best attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its speedup over the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup: Option<Interval>,
    /// Its speedup over the fastest way to run the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_over_fastest: Option<Interval>,
    /// Code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The resource of a budget, for example `tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Amount of it that is used or reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
}
