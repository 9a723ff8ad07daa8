//! The metrics of this server in the format of Prometheus. `docs/how-to/operations.md` lists them.

use std::time::Duration;

use nightshift_engine::store::{Reported, StepRecord};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::time::TimestampMs;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::running_tries::{RunningTry, kind_name};

/// Bucket bounds for short durations, in seconds: of a commit or a claim.
const SHORT_S: [f64; 13] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 25.0];
/// Bucket bounds for long durations, in seconds: of a step.
const LONG_S: [f64; 13] = [0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 7_200.0];
/// Milliseconds of a second.
const SECOND_MS: f64 = 1_000.0;

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    /// It failed and is tried again.
    Retried,
    Failed,
    Cancelled,
    /// Its lease expired without a report.
    Lost,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StepLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RouteLabels {
    pub(crate) route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StatusLabels {
    pub(crate) status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DeviceUseLabels {
    pub(crate) used: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BudgetLabels {
    pub(crate) campaign: String,
    pub(crate) resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResourceLabels {
    pub(crate) direction: &'static str,
    pub(crate) model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ModelLabels {
    pub(crate) model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    pub(crate) route: String,
    pub(crate) status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UseLabels {
    target: &'static str,
    usage: &'static str,
}

impl UseLabels {
    /// Returns how a step of this route uses its device.
    fn of(route: &str) -> Option<Self> {
        let needs = Needs::parse_route(route).ok()?;
        let usage = match needs.device {
            DeviceUse::None => return None,
            DeviceUse::Shared => "shared",
            DeviceUse::Exclusive => "exclusive",
        };
        Some(Self { target: needs.target?.as_str(), usage })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DeviceLabels {
    pub(crate) target: &'static str,
    pub(crate) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QuarantineLabels {
    pub(crate) device: String,
    pub(crate) worker: String,
    pub(crate) code: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn short() -> Histogram {
    Histogram::new(SHORT_S)
}

fn long() -> Histogram {
    Histogram::new(LONG_S)
}

/// All metrics.
pub(crate) struct Metrics {
    registry: Registry,
    step_duration: Histograms<StepLabels>,
    step_wait: Histograms<KindLabels>,
    step_retries: Family<KindLabels, Counter>,
    leases_lost: Family<KindLabels, Counter>,
    reports: Family<ResultLabels, Counter>,
    claims: Family<ResultLabels, Counter>,
    claimed_steps: Counter,
    claim_duration: Histogram,
    commit_duration: Histograms<ResultLabels>,
    device_seconds: Family<KindLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    device_use_seconds: Family<UseLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    model_calls: Family<ModelLabels, Counter>,
    model_tokens: Family<ResourceLabels, Counter>,
    model_cost: Family<ModelLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    requests: Family<RequestLabels, Counter>,
    pub(crate) ready_steps: Family<RouteLabels, Gauge>,
    pub(crate) oldest_ready: Family<RouteLabels, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pub(crate) oldest_lease: Family<RouteLabels, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pub(crate) devices_in_use: Family<DeviceUseLabels, Gauge>,
    pub(crate) timers: Gauge,
    pub(crate) blocked_steps: Gauge,
    pub(crate) leases: Gauge,
    pub(crate) runs: Family<StatusLabels, Gauge>,
    pub(crate) workers: Family<StatusLabels, Gauge>,
    pub(crate) devices: Family<DeviceLabels, Gauge>,
    pub(crate) quarantined: Family<QuarantineLabels, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pub(crate) budget_used: Family<BudgetLabels, Gauge>,
    pub(crate) budget_reserved: Family<BudgetLabels, Gauge>,
    pub(crate) budget_cap: Family<BudgetLabels, Gauge>,
    pub(crate) store_up: Gauge,
    pub(crate) spans_sent: Gauge,
    pub(crate) spans_dropped: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("nightshift");
        let step_duration: Histograms<StepLabels> = Family::new_with_constructor(long);
        let step_wait: Histograms<KindLabels> = Family::new_with_constructor(long);
        let commit_duration: Histograms<ResultLabels> = Family::new_with_constructor(short);
        let claim_duration = short();
        let s = Unit::Seconds;
        registry.register_with_unit(
            "step_duration",
            "Time from claim to report of a try",
            s.clone(),
            step_duration.clone(),
        );
        registry.register_with_unit(
            "step_wait",
            "Time from being scheduled to being claimed, first tries",
            s.clone(),
            step_wait.clone(),
        );
        registry.register_with_unit(
            "store_commit_duration",
            "Time of a durable commit of claims, decisions and reports",
            s.clone(),
            commit_duration.clone(),
        );
        registry.register_with_unit(
            "claim_duration",
            "Time of a claim in the store, without waiting for work",
            s,
            claim_duration.clone(),
        );
        let mut metrics = Self {
            step_duration,
            step_wait,
            commit_duration,
            claim_duration,
            registry,
            step_retries: Family::default(),
            leases_lost: Family::default(),
            reports: Family::default(),
            claims: Family::default(),
            claimed_steps: Counter::default(),
            device_seconds: Family::default(),
            device_use_seconds: Family::default(),
            model_calls: Family::default(),
            model_tokens: Family::default(),
            model_cost: Family::default(),
            requests: Family::default(),
            ready_steps: Family::default(),
            oldest_ready: Family::default(),
            oldest_lease: Family::default(),
            devices_in_use: Family::default(),
            timers: Gauge::default(),
            blocked_steps: Gauge::default(),
            leases: Gauge::default(),
            runs: Family::default(),
            workers: Family::default(),
            devices: Family::default(),
            quarantined: Family::default(),
            budget_used: Family::default(),
            budget_reserved: Family::default(),
            budget_cap: Family::default(),
            store_up: Gauge::default(),
            spans_sent: Gauge::default(),
            spans_dropped: Gauge::default(),
        };
        metrics.register_counters();
        metrics.register_gauges();
        metrics
    }

    fn register_counters(&mut self) {
        let r = &mut self.registry;
        r.register("step_retries", "Tries that failed and are repeated", self.step_retries.clone());
        r.register("leases_lost", "Leases that expired before a report", self.leases_lost.clone());
        r.register("reports", "Reports of tries, committed or too late", self.reports.clone());
        r.register("claims", "Claims in the store, with and without steps", self.claims.clone());
        r.register("claimed_steps", "Steps that were leased", self.claimed_steps.clone());
        r.register("device_seconds", "Time for which steps had a device", self.device_seconds.clone());
        r.register("device_use_seconds", "Time for which steps had a device, by how", self.device_use_seconds.clone());
        r.register("model_calls", "Model calls that were answered", self.model_calls.clone());
        r.register("model_tokens", "Tokens of model calls", self.model_tokens.clone());
        r.register("model_cost_usd", "Price of model calls whose price is known", self.model_cost.clone());
        r.register("http_requests", "Requests that were answered", self.requests.clone());
    }

    fn register_gauges(&mut self) {
        let r = &mut self.registry;
        r.register("ready_steps", "Steps that wait for a machine", self.ready_steps.clone());
        let oldest = self.oldest_ready.clone();
        r.register_with_unit("oldest_ready_age", "Age of the oldest step that is ready", Unit::Seconds, oldest);
        let oldest = self.oldest_lease.clone();
        r.register_with_unit("oldest_lease_age", "Age of the oldest lease", Unit::Seconds, oldest);
        r.register("waiting_steps", "Steps that wait for a moment", self.timers.clone());
        r.register("blocked_steps", "Steps that wait for a budget", self.blocked_steps.clone());
        r.register("leases", "Leased steps", self.leases.clone());
        r.register("devices_in_use", "Devices in exclusive or shared use", self.devices_in_use.clone());
        r.register("runs", "Runs", self.runs.clone());
        r.register("workers", "Known workers", self.workers.clone());
        r.register("devices", "Devices of live workers", self.devices.clone());
        let quarantined = self.quarantined.clone();
        r.register_with_unit(
            "device_quarantined",
            "Time for which nothing may run on a device",
            Unit::Seconds,
            quarantined,
        );
        r.register("budget_used", "Used, in the unit of the resource", self.budget_used.clone());
        r.register("budget_reserved", "Reserved, in the unit of the resource", self.budget_reserved.clone());
        r.register("budget_cap", "Limit, in the unit of the resource", self.budget_cap.clone());
        r.register("store_up", "Whether the database answers", self.store_up.clone());
        r.register("spans_sent", "Spans that the collector accepted", self.spans_sent.clone());
        r.register("spans_dropped", "Dropped spans", self.spans_dropped.clone());
    }

    /// Returns the page for Prometheus.
    pub(crate) fn page(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry)?;
        Ok(page)
    }

    pub(crate) fn answered(&self, labels: &RequestLabels) {
        self.requests.get_or_create(labels).inc();
    }

    pub(super) fn committed(&self, took: Duration, ok: bool) {
        let result = if ok { "committed" } else { "failed" };
        self.commit_duration.get_or_create(&ResultLabels { result }).observe(took.as_secs_f64());
    }

    pub(super) fn claimed(&self, took: Duration, steps: usize) {
        let result = if steps == 0 { "nothing" } else { "steps" };
        self.claims.get_or_create(&ResultLabels { result }).inc();
        self.claimed_steps.inc_by(u64::try_from(steps).unwrap_or(u64::MAX));
        self.claim_duration.observe(took.as_secs_f64());
    }

    pub(super) fn began(&self, step: &StepRecord) {
        // The record does not contain the time at which a later try became ready.
        if step.tries > 1 {
            return;
        }
        let Some(held) = RunningTry::of(step) else { return };
        let labels = KindLabels { kind: kind_name(&step.kind) };
        self.step_wait.get_or_create(&labels).observe(seconds(held.started_at.since_ms(held.ready_at)));
    }

    pub(super) fn reported(&self, reported: Reported) {
        let result = match reported {
            Reported::Committed => "committed",
            Reported::LeaseLost => "late",
        };
        self.reports.get_or_create(&ResultLabels { result }).inc();
    }

    pub(super) fn ended(&self, held: &RunningTry, outcome: Outcome, at: TimestampMs) {
        let took_s = seconds(at.since_ms(held.started_at));
        let kind = KindLabels { kind: held.kind };
        let labels = StepLabels { kind: held.kind, outcome: outcome.as_str() };
        self.step_duration.get_or_create(&labels).observe(took_s);
        if held.device.is_some() {
            self.device_seconds.get_or_create(&kind).inc_by(took_s);
            if let Some(labels) = UseLabels::of(&held.route) {
                self.device_use_seconds.get_or_create(&labels).inc_by(took_s);
            }
        }
        match outcome {
            Outcome::Retried => {
                self.step_retries.get_or_create(&kind).inc();
            }
            Outcome::Lost => {
                self.leases_lost.get_or_create(&kind).inc();
            }
            Outcome::Completed | Outcome::Failed | Outcome::Cancelled => {}
        }
    }

    pub(super) fn model_called(&self, call: &ModelCallSummary) {
        let model = call.model.clone();
        self.model_calls.get_or_create(&ModelLabels { model: model.clone() }).inc();
        for (direction, tokens) in [("in", call.input_tokens), ("out", call.output_tokens)] {
            let labels = ResourceLabels { direction, model: model.clone() };
            self.model_tokens.get_or_create(&labels).inc_by(tokens.unwrap_or(0));
        }
        if let Some(price_microusd) = call.price_microusd {
            self.model_cost.get_or_create(&ModelLabels { model }).inc_by(ratio(price_microusd, 1_000_000.0));
        }
    }
}

/// Returns the seconds of a duration.
pub(crate) fn seconds(duration_ms: u64) -> f64 {
    ratio(duration_ms, SECOND_MS)
}

#[expect(clippy::cast_precision_loss, reason = "numbers for charts: what is beyond 2^53 may be rounded")]
fn ratio(number: u64, unit: f64) -> f64 {
    number as f64 / unit
}
