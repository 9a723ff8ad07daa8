//! What the HTTP API under `/api/v1` takes and gives.

mod attempt_filter;
mod attempt_list;
mod attempt_points;
mod boards;
mod campaign;
mod campaign_query;
mod campaign_results;
mod control;
mod handover;
mod lease;
mod live;
mod request;
mod retrieval;
mod run;
mod search;
mod session;
mod table;
mod team;
mod upload;
mod webhook;
mod worker;

use serde::{Deserialize, Serialize};

pub use self::attempt_filter::{
    AttemptFilter, AttemptQuery, AttemptSort, InvalidQuery, MAX_FILTER_TEXT_CHARS, SortOrder,
};
pub use self::attempt_list::{AttemptPage, AttemptRow, Facet, Facets};
pub use self::attempt_points::{
    AttemptPoint, AttemptPoints, InvalidPoints, MAX_POINTS, POINTS_CONTENT_TYPE, PointValue, PointsQuery,
};
pub use self::boards::{BestSoFar, FAST_P_THRESHOLDS, ModelBoard, TaskBoard};
pub use self::campaign::{CampaignCreated, CampaignDetail, CampaignSummary, CreateCampaign, SetLimits};
pub use self::campaign_query::{CampaignPage, CampaignQuery, CampaignSort, CampaignState};
pub use self::campaign_results::{
    BestAt, CampaignResults, DeviceUse, FastP, MAX_LINE_POINTS, MAX_RESULT_DEVICES, MAX_RESULT_LINES, MAX_RESULT_MARKS,
    ResultLine, ResultMark,
};
pub use self::control::{
    Bulk, BulkAction, BulkDone, Control, ControlAction, Controlled, Prune, PruneDone, Retry, RunFilter, SetPriority,
};
pub use self::handover::{
    BeginHandover, HandoverDetail, HandoverFile, HandoverFinished, HandoverState, MAX_HANDOVER_WAIT_S,
};
pub use self::lease::{
    Claim, Claimed, FreeDevice, FreeSlots, Heartbeat, HeartbeatReply, LeasedStep, Report, ReportReply, ReportResult,
    TryOutcome,
};
pub use self::live::{
    CampaignChange, LAST_EVENT_ID_HEADER, LIVE_HEARTBEAT_MS, LiveEvent, LiveMessage, ResyncReason, RunChange,
    WorkerChange,
};
pub use self::request::{
    AnswerRequest, DEFAULT_REQUEST_LEASE_S, EarlierTurn, ExtendRequest, LeasedRequest, MAX_ANSWER_BYTES,
    MAX_HOLDER_CHARS, MAX_REQUEST_LEASE_S, MIN_REQUEST_LEASE_S, NextRequest, ReleaseRequest, RequestAnswered,
    RequestDetail, RequestQuestion, RequestState, RequestView,
};
pub use self::retrieval::{Retrieval, Retrieved, RetrievedLesson, RetrievedNote};
pub use self::run::{
    BestTimes, EventView, EventsPage, RunCounts, RunDetail, RunDigest, RunSummary, RunView, StepView,
    precision_policies,
};
pub use self::search::{MAX_COUNTED_HITS, MAX_SEARCH_TEXT_CHARS, SearchHit, SearchKind, SearchPage, SearchQuery};
pub use self::session::{OpenSession, REQUEST_HEADER, SessionView, SignIn, SignedInBy};
pub use self::table::{TableFormat, TableName};
pub use self::team::{
    ChangeTags, CreateShare, EditRemark, InvalidTarget, MAX_LABEL_CHARS, MAX_REMARK_BYTES, MAX_TAG_CHARS, MAX_TAGS,
    MAX_VIEW_QUERY_BYTES, NewRemark, Pin, PutSavedView, Remark, SavedView, SetPin, Share, ShareCreated, Tag, TagCount,
    Target,
};
pub use self::upload::{MAX_UPLOAD_PART_BYTES, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER, UploadProgress};
pub use self::webhook::{
    CreateWebhook, DELIVERY_HEADER, Delivery, DeliveryStatus, EVENT_HEADER, SIGNATURE_HEADER, Webhook, WebhookCreated,
    WebhookEvent, WebhookMessage,
};
pub use self::worker::{
    DeviceReading, Drain, QuarantineView, QuarantinedDevice, RegisterWorker, WorkerRegistered, WorkerView,
};
use crate::id::{CampaignId, RunId, ServerId};
use crate::time::TimestampMs;

/// Header that carries the idempotency key of a creating call.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Most rows of one page.
pub const MAX_PAGE_ROWS: u32 = 500;

/// Longest time that a long-polling call is held, in milliseconds.
pub const MAX_WAIT_MS: u64 = 25_000;

/// One page of a list; `next` is the cursor of the following one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// Rows.
    pub items: Vec<T>,
    /// Cursor to pass on; none at the end.
    pub next: Option<String>,
}

/// A life of a server, `GET /servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerView {
    /// Id.
    pub id: ServerId,
    /// Name for people.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it listens.
    pub address: String,
    /// When it began.
    pub started_at: TimestampMs,
    /// Whether its pulse is fresh.
    pub alive: bool,
}

/// Answer to `GET /ids/{prefix}`: every id that begins with the text, or whose digits do, or that ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IdMatches {
    /// Campaigns.
    pub campaigns: Vec<CampaignId>,
    /// Runs.
    pub runs: Vec<RunId>,
}

/// Answer to `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Version of the server.
    pub version: String,
    /// Kind of database: `sqlite` or `postgres`.
    pub database: String,
    /// Server clock.
    pub now: TimestampMs,
    /// Whether its background loops run (a command that only reads starts a server without them).
    pub drives: bool,
}
