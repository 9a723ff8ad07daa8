//! Tests of live events: content, delay, and reconnecting clients.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use nightshift_protocol::api::{
    Control, ControlAction, LAST_EVENT_ID_HEADER, LiveEvent, LiveMessage, ResyncReason, RunChange, SetLimits,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use reqwest::StatusCode;
use serde_json::json;

use crate::replicas::{Shared, on_both, replica};
use crate::setup::{PATIENCE, TestServer, Wish, ok, refusal, refused};

/// Maximum delay of an event, for the fastest of several tries, because the machine may be busy. Without a notice, the
/// server would see the event after two seconds.
const FAST: Duration = Duration::from_secs(1);
/// Maximum number of streams of a server.
const MAX_STREAMS: usize = 256;

/// A listening client.
struct Tail {
    bytes: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    buffer: String,
    last_id: Option<String>,
}

impl Tail {
    async fn open(server: &TestServer, query: &str, after: Option<&str>) -> Self {
        let mut request = server.get(&format!("/live{query}"));
        if let Some(after) = after {
            request = request.header(LAST_EVENT_ID_HEADER, after);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        assert!(answer.headers()["cache-control"].to_str().unwrap().contains("no-store"));
        Self { bytes: answer.bytes_stream().boxed(), buffer: String::new(), last_id: None }
    }

    /// Returns the next event; none at the end of the stream.
    async fn next(&mut self) -> Option<LiveMessage> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = frame.lines().filter_map(|line| line.split_once(": "));
                    lines.filter(|(field, _)| *field == name).map(|(_, value)| value.to_owned()).next()
                };
                let (id, data) = (field("id"), field("data"));
                let name = field("event");
                let rest = rest.to_owned();
                self.buffer = rest;
                let event: LiveEvent = serde_json::from_str(&data.unwrap()).unwrap();
                assert_eq!(name.as_deref(), Some(event.name()));
                if id.is_some() {
                    self.last_id.clone_from(&id);
                }
                return Some(LiveMessage { id, event });
            }
            let chunk = tokio::time::timeout(PATIENCE, self.bytes.next()).await.unwrap()?;
            self.buffer.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    }

    async fn until<T>(&mut self, mut wanted: impl FnMut(&LiveEvent) -> Option<T>) -> T {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let message = self.next().await.unwrap();
            if let Some(found) = wanted(&message.event) {
                return found;
            }
        }
        panic!("the event did not come");
    }

    async fn until_status(&mut self, run: &RunId, status: RunStatus) -> RunChange {
        self.until(|event| match event {
            LiveEvent::RunChanged(change) if change.run == *run && change.status == status => Some((**change).clone()),
            _ => None,
        })
        .await
    }

    fn last_id(&self) -> String {
        self.last_id.clone().unwrap()
    }
}

fn opened(resumed: bool) -> impl FnMut(&LiveEvent) -> Option<()> {
    move |event| match event {
        LiveEvent::Opened { resumed: is, .. } => (*is == resumed).then_some(()),
        _ => None,
    }
}

async fn control(server: &TestServer, run: &RunId, action: ControlAction) {
    let answer = server.post(&format!("/runs/{run}/control")).json(&Control { action }).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_on_its_way_in_a_moment() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, run) = server.campaign().await;
    let mut tail = Tail::open(&server, "", None).await;
    tail.until(opened(false)).await;
    let mut fastest = PATIENCE;
    for _ in 0..4 {
        for (action, status) in [(ControlAction::Pause, RunStatus::Paused), (ControlAction::Resume, RunStatus::Running)]
        {
            let began = Instant::now();
            let (change, ()) = tokio::join!(tail.until_status(&run, status), control(&server, &run, action));
            fastest = fastest.min(began.elapsed());
            assert_eq!(change.campaign, created.campaign);
            assert_eq!(change.digest.task, "softmax");
            assert!(change.seq > 1);
        }
    }
    assert!(fastest < FAST, "the fastest of eight took {fastest:?}");
    let counts = tail
        .until(|event| match event {
            LiveEvent::CampaignChanged(change) => Some(change.runs),
            _ => None,
        })
        .await;
    assert_eq!(counts.total(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_comes_back_misses_nothing() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let mut tail = Tail::open(&server, "", None).await;
    tail.until(opened(false)).await;
    control(&server, &run, ControlAction::Pause).await;
    tail.until_status(&run, RunStatus::Paused).await;
    let seen = tail.last_id();
    drop(tail);
    // Without a listener.
    control(&server, &run, ControlAction::Resume).await;
    control(&server, &run, ControlAction::Cancel).await;
    server.until_status(&run, RunStatus::Cancelled).await;
    for by_query in [false, true] {
        let query = if by_query { format!("?after={seen}") } else { String::new() };
        let mut tail = Tail::open(&server, &query, (!by_query).then_some(&seen)).await;
        tail.until(opened(true)).await;
        tail.until_status(&run, RunStatus::Cancelled).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_an_unknown_position_gets_a_resync() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut tail = Tail::open(&server, "", None).await;
    tail.until(opened(false)).await;
    let here = tail.last_id();
    let (journal, position) = here.split_once('-').unwrap();
    let later = format!("{journal}-{}", position.parse::<u64>().unwrap() + 1_000);
    let elsewhere = format!("{}-{position}", "0".repeat(32));
    for (id, reason) in [
        (later.as_str(), ResyncReason::TooOld),
        (elsewhere.as_str(), ResyncReason::OtherServer),
        ("nonsense", ResyncReason::OtherServer),
    ] {
        let mut tail = Tail::open(&server, "", Some(id)).await;
        assert_eq!(tail.next().await.unwrap().event, LiveEvent::Resync { reason }, "{id}");
        let mut again = Tail::open(&server, "", Some(&tail.last_id())).await;
        again.until(opened(true)).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_another_server_are_received() {
    on_both(async |shared: Shared| {
        let (here, there) = (shared.server(replica()).await, shared.server(replica()).await);
        let mut tail = Tail::open(&here, "", None).await;
        tail.until(opened(false)).await;
        let (_, run) = there.campaign().await;
        tail.until_status(&run, RunStatus::Running).await;
        control(&there, &run, ControlAction::Cancel).await;
        tail.until_status(&run, RunStatus::Cancelled).await;
        // A position in the stream of one server is unknown to another server.
        let mut other = Tail::open(&there, "", Some(&tail.last_id())).await;
        let first = other.next().await.unwrap().event;
        assert_eq!(first, LiveEvent::Resync { reason: ResyncReason::OtherServer });
        here.stop().await;
        there.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_one_campaign_or_run_is_about_nothing_else() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (wanted, run) = server.campaign().await;
    let (_, other) = server.campaign().await;
    for query in [format!("?campaign={}", wanted.campaign), format!("?run={run}")] {
        let mut tail = Tail::open(&server, &query, None).await;
        tail.until(opened(false)).await;
        control(&server, &other, ControlAction::Pause).await;
        control(&server, &run, ControlAction::Pause).await;
        tail.until(|event| match event {
            LiveEvent::RunChanged(change) => {
                assert_eq!(change.run, run);
                (change.status == RunStatus::Paused).then_some(())
            }
            LiveEvent::CampaignChanged(change) => {
                assert_eq!(change.campaign, wanted.campaign);
                None
            }
            LiveEvent::WorkerChanged(_) => panic!("workers belong to no campaign"),
            _ => None,
        })
        .await;
        for run in [&run, &other] {
            control(&server, run, ControlAction::Resume).await;
        }
    }
    let unknown = "cmp_00000000000000000000000000000000";
    let answer = server.get(&format!("/live?campaign={unknown}")).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "campaign.not_found"));
    let answer = server.get("/live?run=run_00000000000000000000000000000000").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "run.not_found"));
    let answer = server.get("/live?colour=red").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "request.invalid_query"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_workers_and_changed_limits_are_published() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, _) = server.campaign().await;
    let mut tail = Tail::open(&server, "", None).await;
    tail.until(opened(false)).await;
    // The first look only records the existing workers.
    let mut worker = server.register().await;
    let mut tries = 0;
    while tries < 10 {
        tries += 1;
        let heard = tokio::time::timeout(
            Duration::from_secs(3),
            tail.until(|event| match event {
                LiveEvent::WorkerChanged(change) if change.worker == worker => Some(change.clone()),
                _ => None,
            }),
        );
        if let Ok(change) = heard.await {
            assert_eq!((change.name.as_str(), change.silent, change.gone), ("box", false, false));
            break;
        }
        worker = server.register().await;
    }
    assert!(tries < 10, "no worker was told of");
    let limits = SetLimits { weight: Some(3), ..serde_json::from_value(json!({})).unwrap() };
    let path = format!("/campaigns/{}/limits", created.campaign);
    let _: serde_json::Value = ok(server.post(&path).json(&limits).send().await.unwrap()).await;
    tail.until(|event| match event {
        LiveEvent::CampaignChanged(change) => (change.campaign == created.campaign).then_some(()),
        _ => None,
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_its_server() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut tail = Tail::open(&server, "", None).await;
    tail.until(opened(false)).await;
    server.stop().await;
    // A server that tells its streams nothing of its end cuts them off without this event.
    let closing = tail.next().await.unwrap();
    assert_eq!((closing.event, closing.id), (LiveEvent::Closing, None));
    assert!(tail.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_streams_than_the_limit_are_refused_until_one_ends() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut tails = Vec::new();
    for _ in 0..MAX_STREAMS {
        let mut tail = Tail::open(&server, "", None).await;
        tail.until(opened(false)).await;
        tails.push(tail);
    }
    let answer = server.get("/live").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(503, "server.too_many_streams"));
    tails.pop();
    crate::setup::until("a free place", || async {
        (server.get("/live").send().await.unwrap().status() == StatusCode::OK).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_lasts_no_longer_than_what_it_was_opened_with() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    // Long enough for a busy machine to open the stream in time.
    let token = json!({ "name": "for a moment", "role": "viewer", "valid_for_ms": 20_000 });
    let made: serde_json::Value = ok(server.post("/tokens").json(&token).send().await.unwrap()).await;
    let secret = made["secret"].as_str().unwrap();
    let answer = server.call(reqwest::Method::GET, "/live", secret).send().await.unwrap();
    let mut tail = Tail { bytes: answer.bytes_stream().boxed(), buffer: String::new(), last_id: None };
    tail.until(opened(false)).await;
    let began = Instant::now();
    while tail.next().await.is_some() {
        assert!(began.elapsed() < PATIENCE * 2, "the token is over, and the stream goes on");
    }
    let answer = server.call(reqwest::Method::GET, "/live", secret).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(401, "token.expired"));
    server.stop().await;
}

#[tokio::test]
async fn a_caller_without_read_permission_may_not_listen() {
    let wish = Wish { reads_need_token: true, ..Wish::default() };
    let (server, _folder) = TestServer::start(wish).await;
    let answer = server.bare(reqwest::Method::GET, "/api/v1/live").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(401, "auth.required"));
    server.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_what_it_was_opened_with_is_ended() {
    let (server, _folder) = TestServer::start(Wish { reads_need_token: true, ..Wish::default() }).await;
    let open = async |name: &str| {
        let token = json!({ "name": name, "role": "viewer" });
        let made: serde_json::Value = ok(server.post("/tokens").json(&token).send().await.unwrap()).await;
        let answer = server.call(reqwest::Method::GET, "/live", made["secret"].as_str().unwrap()).send().await.unwrap();
        let mut tail = Tail { bytes: answer.bytes_stream().boxed(), buffer: String::new(), last_id: None };
        tail.until(opened(false)).await;
        (made["token"]["id"].as_str().unwrap().to_owned(), tail)
    };
    let (token, mut ends) = open("who is to go").await;
    let (_, mut stays) = open("who is to stay").await;
    let began = Instant::now();
    let revoked = server.post(&format!("/tokens/{token}/revoke")).send().await.unwrap();
    assert_eq!(revoked.status(), StatusCode::OK);
    while ends.next().await.is_some() {}
    // Far below the maximum duration of a stream of five minutes, with a margin for a busy machine.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let (_, run) = server.campaign().await;
    stays.until_status(&run, RunStatus::Running).await;
    server.stop().await;
}

#[tokio::test]
async fn a_stream_of_a_browser_ends_when_it_signs_out() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let token = json!({ "name": "who signs in", "role": "viewer" });
    let made: serde_json::Value = ok(server.post("/tokens").json(&token).send().await.unwrap()).await;
    let wish = json!({ "token": made["secret"] });
    let signed_in = server.bare(reqwest::Method::POST, "/api/v1/session").json(&wish).send().await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = |method: reqwest::Method, path: &str| {
        server.bare(method, path).header("cookie", &cookie).header("sec-fetch-site", "same-origin")
    };
    let answer = page(reqwest::Method::GET, "/api/v1/live").send().await.unwrap();
    let mut tail = Tail { bytes: answer.bytes_stream().boxed(), buffer: String::new(), last_id: None };
    tail.until(opened(false)).await;
    let out = page(reqwest::Method::DELETE, "/api/v1/session").send().await.unwrap();
    assert_eq!(out.status(), StatusCode::NO_CONTENT);
    // Reading is public here. An anonymous caller may listen, but this browser has to authenticate again.
    while tail.next().await.is_some() {}
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_within_the_requested_pause_follow_it() {
    const PAUSE_MS: u64 = 1_500;
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let mut tail = Tail::open(&server, &format!("?pause_ms={PAUSE_MS}"), None).await;
    tail.until(opened(false)).await;
    // Before the first event, because the pause begins later.
    let began = Instant::now();
    control(&server, &run, ControlAction::Pause).await;
    tail.until_status(&run, RunStatus::Paused).await;
    control(&server, &run, ControlAction::Resume).await;
    tail.until_status(&run, RunStatus::Running).await;
    assert!(began.elapsed() >= Duration::from_millis(PAUSE_MS), "it came after {:?}", began.elapsed());
    let answer = server.get("/live?pause_ms=60001").send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "request.invalid_query"));
    server.stop().await;
}
