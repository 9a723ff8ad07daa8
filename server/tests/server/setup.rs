//! A server in a temporary folder, and its clients.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use nightshift_engine::clock::Clock;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::Store;
use nightshift_protocol::api::{
    CampaignCreated, Claim, Claimed, CreateCampaign, EventsPage, Heartbeat, HeartbeatReply, IDEMPOTENCY_HEADER,
    LeasedStep, Page, RegisterWorker, Report, ReportReply, ReportResult, RunDetail, RunSummary, TryOutcome,
    WorkerRegistered,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps};
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, ModelChoice};
use nightshift_protocol::error::{PROBLEM_CONTENT_TYPE, Problem};
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::task::TaskGoal;
use nightshift_server::{OsRandom, Parts, Rates, Running, Server, ServerConfig, ServerError, SystemClock, ViewFn};
use nightshift_store::{AttemptIndex, OpenOptions, PostgresOptions, SqlStore};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

use crate::toy::{Behaviour, FakeAgents, Stall, ToyWorkflow, free, offers, view};

pub(crate) const OPERATOR: &str = "operator-token";
pub(crate) const WORKER: &str = "worker-token";
/// Timeout of each wait in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The server configuration of a test.
pub(crate) struct Wish {
    pub(crate) reads_need_token: bool,
    pub(crate) rates: Rates,
    pub(crate) drives: bool,
    /// Number of expected workers of the same process.
    pub(crate) own_workers: usize,
    pub(crate) agent_slots: usize,
    pub(crate) lease_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) agents: Arc<FakeAgents>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) retry: RetryPolicy,
    pub(crate) reserve: Vec<Amount>,
    pub(crate) stall: Option<Arc<Stall>>,
    pub(crate) pulse_ms: u64,
    /// Whether no other server can be alive.
    pub(crate) sole: bool,
    pub(crate) retention: Option<Duration>,
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) extra: Router,
    pub(crate) request_deadline: std::time::Duration,
    pub(crate) attempts: Option<Arc<dyn AttemptIndex>>,
    /// Reads the states of runs.
    pub(crate) view: ViewFn,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            reads_need_token: false,
            rates: Rates::default(),
            drives: true,
            own_workers: 0,
            agent_slots: 2,
            lease_ms: 15_000,
            heartbeat_ms: 100,
            agents: FakeAgents::new(Behaviour::Plans),
            clock: Arc::new(SystemClock),
            retry: ToyWorkflow::default().retry,
            reserve: Vec::new(),
            stall: None,
            pulse_ms: 200,
            sole: true,
            retention: None,
            request_deadline: nightshift_server::DEFAULT_REQUEST_DEADLINE,
            otlp_endpoint: None,
            extra: Router::new(),
            attempts: None,
            view,
        }
    }
}

impl Wish {
    pub(crate) fn config(&self) -> ServerConfig {
        ServerConfig {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            token: OPERATOR.to_owned().into(),
            worker_token: WORKER.to_owned().into(),
            reads_need_token: self.reads_need_token,
            rates: self.rates,
            drives: self.drives,
            own_workers: self.own_workers,
            agent_slots: self.agent_slots,
            lease_ms: self.lease_ms,
            heartbeat_ms: self.heartbeat_ms,
            pulse_ms: self.pulse_ms,
            sole: self.sole,
            retention: self.retention,
            request_deadline: self.request_deadline,
            otlp_endpoint: self.otlp_endpoint.clone(),
            name: "test".to_owned(),
            version: "0.0.0-test".to_owned(),
        }
    }

    pub(crate) fn parts(&self, store: Store) -> Parts {
        Parts {
            store,
            workflow: Arc::new(ToyWorkflow {
                retry: self.retry,
                reserve: self.reserve.clone(),
                stall: self.stall.clone(),
            }),
            view: self.view,
            changes: nightshift_optimizer::strategy::changed_attempts,
            agents: self.agents.clone(),
            clock: self.clock.clone(),
            random: Arc::new(OsRandom),
            attempts: self.attempts.clone(),
        }
    }
}

pub(crate) async fn open_store(folder: &TempDir) -> Arc<SqlStore> {
    Arc::new(SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap())
}

/// Opens a store of its own on a shared database.
pub(crate) async fn open_postgres(url: &str) -> Arc<SqlStore> {
    Arc::new(SqlStore::open_postgres(url, PostgresOptions::default()).await.unwrap())
}

/// A server under test.
pub(crate) struct TestServer {
    running: Running,
    http: reqwest::Client,
    base: String,
}

impl TestServer {
    pub(crate) async fn start(wish: Wish) -> (Self, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(&folder).await;
        (Self::on(store.ports(), wish).await, folder)
    }

    pub(crate) async fn on(store: Store, wish: Wish) -> Self {
        Self::try_on(store, &wish).await.unwrap()
    }

    pub(crate) async fn try_on(store: Store, wish: &Wish) -> Result<Self, ServerError> {
        let running = Server::start(wish.config(), wish.parts(store), wish.extra.clone()).await?;
        let base = format!("http://{}", running.addr());
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Ok(Self { running, http, base })
    }

    /// Starts a server with this operator token.
    pub(crate) async fn with_token(store: Store, token: &str) -> Self {
        let wish = Wish::default();
        let config = ServerConfig { token: token.to_owned().into(), ..wish.config() };
        let running = Server::start(config, wish.parts(store), Router::new()).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { base: format!("http://{}", running.addr()), running, http }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Returns the token of workers in the server's process.
    pub(crate) fn embedded_token(&self) -> String {
        self.running.embedded_token().expose_secret().to_owned()
    }

    pub(crate) async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.running.stop()).await.unwrap().unwrap();
    }

    /// Creates a call without a token. The path begins with a slash.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// Creates a call of the API with this token.
    pub(crate) fn call(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.bare(method, &format!("/api/v1{path}")).bearer_auth(token)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.call(Method::GET, path, OPERATOR)
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.call(Method::POST, path, OPERATOR)
    }

    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        ok(self.get(path).send().await.unwrap()).await
    }

    pub(crate) async fn put_artifact(&self, bytes: &[u8]) -> ArtifactHash {
        let hash = ArtifactHash::of(bytes);
        let request = self.call(Method::PUT, &format!("/artifacts/{hash}"), WORKER).body(bytes.to_vec());
        assert_eq!(request.send().await.unwrap().status(), StatusCode::NO_CONTENT);
        hash
    }

    /// Returns a request for a campaign with tasks of these names, whose artifacts are uploaded.
    pub(crate) async fn request(&self, tasks: &[&str]) -> CreateCampaign {
        let bundle = self.put_artifact(&bundle_bytes()).await;
        let replies = self.put_artifact(b"{\"plan\": \"a reply\"}").await;
        let tasks = tasks.iter().map(|name| CampaignTask {
            name: (*name).to_owned(),
            bundle: bundle.clone(),
            scripted_replies: Some(replies.clone()),
        });
        CreateCampaign {
            spec: CampaignSpec {
                schema: CAMPAIGN_SCHEMA,
                name: "a night".to_owned(),
                model: ModelChoice::Scripted,
                models: nightshift_protocol::models::ModelPlan::default(),
                knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
                untrusted_replies: false,
                strategy: "stitch".to_owned(),
                goal: TaskGoal::default(),
                allow_unsandboxed: false,
                budget: BudgetCaps::default(),
                schedule: None,
                priority: 0,
                weight: 1,
                gates: BTreeSet::new(),
                labels: BTreeSet::new(),
                tasks: tasks.collect(),
            },
        }
    }

    pub(crate) async fn create(&self, request: &CreateCampaign, key: Option<&str>) -> Response {
        let mut call = self.post("/campaigns").json(request);
        if let Some(key) = key {
            call = call.header(IDEMPOTENCY_HEADER, key);
        }
        call.send().await.unwrap()
    }

    /// Creates a campaign with one task.
    pub(crate) async fn campaign(&self) -> (CampaignCreated, RunId) {
        let request = self.request(&["softmax"]).await;
        let created: CampaignCreated = ok(self.create(&request, None).await).await;
        let run = created.runs[0].clone();
        (created, run)
    }

    pub(crate) async fn register(&self) -> WorkerId {
        let Some(worker) = self.try_register().await else { panic!("the registration was refused") };
        worker
    }

    pub(crate) async fn try_register(&self) -> Option<WorkerId> {
        let worker =
            RegisterWorker { name: "box".to_owned(), embedded: false, offers: offers(), version: "0".to_owned() };
        let answer = self.call(Method::POST, "/workers", WORKER).json(&worker).send().await.unwrap();
        if answer.status().is_success() { Some(ok::<WorkerRegistered>(answer).await.worker) } else { None }
    }

    pub(crate) async fn try_claim(&self, worker: &WorkerId, wait_ms: u64) -> Response {
        let claim = Claim { free: free(), wait_ms };
        let path = format!("/workers/{worker}/claim");
        self.call(Method::POST, &path, WORKER).json(&claim).send().await.unwrap()
    }

    pub(crate) async fn claim(&self, worker: &WorkerId, wait_ms: u64) -> Vec<LeasedStep> {
        ok::<Claimed>(self.try_claim(worker, wait_ms).await).await.steps
    }

    /// Claims one step, waiting until it is ready.
    pub(crate) async fn claim_one(&self, worker: &WorkerId) -> LeasedStep {
        let mut steps = self.claim(worker, 20_000).await;
        assert_eq!(steps.len(), 1);
        steps.remove(0)
    }

    pub(crate) async fn heartbeat(&self, worker: &WorkerId, leases: &[(StepId, u64)]) -> HeartbeatReply {
        let path = format!("/workers/{worker}/heartbeat");
        let heartbeat = Heartbeat { leases: leases.to_vec(), quarantined: None, leaving: false, readings: None };
        ok(self.call(Method::POST, &path, WORKER).json(&heartbeat).send().await.unwrap()).await
    }

    pub(crate) async fn try_report(&self, worker: &WorkerId, step: &LeasedStep, result: TryOutcome) -> Response {
        let report = Report { worker: worker.clone(), epoch: step.epoch, result, free: None };
        let path = format!("/steps/{}/report", step.step);
        self.call(Method::POST, &path, WORKER).json(&report).send().await.unwrap()
    }

    pub(crate) async fn report(&self, worker: &WorkerId, step: &LeasedStep, result: TryOutcome) -> ReportResult {
        ok::<ReportReply>(self.try_report(worker, step, result).await).await.result
    }

    /// Returns a run other than the step's.
    pub(crate) async fn other_run(&self, step: &LeasedStep) -> RunId {
        let runs: Page<RunSummary> = self.read("/runs").await;
        runs.items.into_iter().map(|run| run.id).find(|run| *run != step.run).unwrap()
    }

    pub(crate) async fn run(&self, run: &RunId) -> RunDetail {
        self.read(&format!("/runs/{run}")).await
    }

    /// Reads the log until an event of this kind. Returns all kinds up to it.
    pub(crate) async fn until_event(&self, run: &RunId, kind: &str) -> Vec<String> {
        let began = Instant::now();
        let mut kinds = Vec::new();
        let mut after = 0;
        loop {
            let page: EventsPage = self.read(&format!("/runs/{run}/events?after={after}&wait_ms=2000")).await;
            for event in page.events {
                after = event.seq;
                kinds.push(event.kind);
                if kinds.last().map(String::as_str) == Some(kind) {
                    return kinds;
                }
            }
            let in_time = began.elapsed() < PATIENCE;
            assert!(in_time, "no `{kind}` came, only {kinds:?}; open: {:?}", self.run(run).await.open_steps);
        }
    }

    /// Waits until the run has this status.
    pub(crate) async fn until_status(&self, run: &RunId, status: RunStatus) {
        let kind = match status {
            RunStatus::Completed => "run_completed",
            RunStatus::Failed => "run_failed",
            RunStatus::Cancelled => "run_cancelled",
            other => panic!("{other:?} is no end"),
        };
        self.until_event(run, kind).await;
        assert_eq!(self.run(run).await.summary.status, status);
    }
}

/// Repeats the call until it returns a value.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut call: impl FnMut() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let waiting = async {
        loop {
            tick.tick().await;
            if let Some(value) = call().await {
                return value;
            }
        }
    };
    let Ok(value) = tokio::time::timeout(PATIENCE, waiting).await else { panic!("{what} did not happen") };
    value
}

pub(crate) fn bundle_bytes() -> Vec<u8> {
    let bundle = json!({
        "spec": {
            "schema": 1,
            "name": "softmax",
            "title": "Softmax",
            "description": "Softmax of each row.",
            "target": "cpu",
            "reference": "reference.cpp",
            "dims": { "n": 16 },
            "inputs": [{ "name": "x", "dtype": "f32", "shape": ["n"] }],
            "outputs": [{ "name": "y", "dtype": "f32", "shape": ["n"] }],
            "tolerance": { "atol": 1e-5, "rtol": 1e-5 },
        },
        "reference_source": "int x;",
    });
    serde_json::to_vec(&bundle).unwrap()
}

/// Returns the body of a successful answer.
pub(crate) async fn ok<T: DeserializeOwned>(response: Response) -> T {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns status and code of an error, which must be problem details.
pub(crate) async fn refused(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let content_type = response.headers().get(CONTENT_TYPE).cloned();
    let text = response.text().await.unwrap();
    let Ok(problem) = serde_json::from_str::<Problem>(&text) else { panic!("{status}: no API error: {text}") };
    assert_eq!(content_type.unwrap(), PROBLEM_CONTENT_TYPE, "{text}");
    assert_eq!(problem, Problem::new(status, problem.error.clone()), "the members agree");
    assert!(!problem.detail.is_empty());
    (status, problem.code)
}

/// Returns an expected refusal.
pub(crate) fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}
