//! Tests of a worker over HTTP: claims, heartbeats, reports.

use std::time::{Duration, Instant};

use nightshift_protocol::api::{
    Control, ControlAction, DeviceReading, Heartbeat, Page, RegisterWorker, Report, ReportResult, TryOutcome,
    WorkerView,
};
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::machine::Offers;
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::step::{StepFailure, StepInput, StepKind, StepOutput};
use nightshift_protocol::target::Target;
use reqwest::Method;

use crate::manual_clock::ManualClock;
use crate::setup::{OPERATOR, TestServer, WORKER, Wish, refusal, refused, until};
use crate::toy::{Behaviour, FakeAgents, PLAN, PREPARE, ROUTE, offers, prepared_output};

fn completed() -> TryOutcome {
    TryOutcome::Completed { output: Box::new(prepared_output()) }
}

#[tokio::test]
async fn a_claimed_step_is_reported_and_the_run_goes_on_to_its_end() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    assert_eq!((step.key.as_str(), step.route.as_str(), step.epoch, &step.run), (PREPARE, ROUTE, 1, &run));
    assert_eq!(step.input.kind(), StepKind::PrepareTask);
    assert!(matches!(step.input, StepInput::PrepareTask { .. }));
    let beat = server.heartbeat(&worker, &[(step.step.clone(), step.epoch)]).await;
    assert!(beat.lost.is_empty() && beat.cancelled.is_empty());
    assert_eq!(server.report(&worker, &step, completed()).await, ReportResult::Committed);
    // The answer may have been lost: repeating the report is no error.
    assert_eq!(server.report(&worker, &step, completed()).await, ReportResult::Committed);
    let kinds = server.until_event(&run, "run_completed").await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "step_completed").count(), 2, "{kinds:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_claim_waits_until_there_is_work() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let worker = server.register().await;
    let request = server.request(&["softmax"]).await;
    let began = Instant::now();
    let (step, _) = tokio::join!(server.claim_one(&worker), async {
        // The claim is held by now or finds the step at once. It has to end early in both cases.
        tokio::task::yield_now().await;
        server.create(&request, None).await
    });
    assert_eq!(step.key, PREPARE);
    assert!(began.elapsed() < Duration::from_secs(19), "the claim was held to its end");
    let began = Instant::now();
    assert!(server.claim(&worker, 50).await.is_empty());
    assert!(began.elapsed() >= Duration::from_millis(50), "an empty claim did not wait");
    server.stop().await;
}

#[tokio::test]
async fn a_report_after_the_lease_was_lost_is_dropped() {
    let clock = ManualClock::new();
    let (server, _folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let (slow, quick) = (server.register().await, server.register().await);
    let old = server.claim_one(&slow).await;
    clock.advance_ms(60_000);
    let new = server.claim_one(&quick).await;
    assert_eq!((&new.step, new.epoch), (&old.step, old.epoch + 1));
    let beat = server.heartbeat(&slow, &[(old.step.clone(), old.epoch)]).await;
    assert_eq!(beat.lost, std::slice::from_ref(&old.step));
    assert_eq!(server.report(&slow, &old, completed()).await, ReportResult::LeaseLost);
    assert_eq!(server.report(&quick, &new, completed()).await, ReportResult::Committed);
    server.until_status(&run, RunStatus::Completed).await;
    server.stop().await;
}

#[tokio::test]
async fn a_worker_cannot_report_for_another_worker() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    server.campaign().await;
    let (holder, other) = (server.register().await, server.register().await);
    let step = server.claim_one(&holder).await;
    assert_eq!(server.report(&other, &step, completed()).await, ReportResult::LeaseLost);
    assert_eq!(server.report(&holder, &step, completed()).await, ReportResult::Committed);
    server.stop().await;
}

#[tokio::test]
async fn an_output_of_another_kind_of_step_is_never_committed() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let nonsense = StepOutput::Diagnosed { diagnosis: None, correction: None, unavailable: None, calls: Vec::new() };
    let outcome = TryOutcome::Completed { output: Box::new(nonsense) };
    let answer = server.try_report(&worker, &step, outcome).await;
    assert_eq!(refused(answer).await, refusal(400, "request.output_mismatch"));
    assert_eq!(server.run(&run).await.open_steps[0].status, StepStatus::Leased);

    let unknown = serde_json::json!({
        "worker": worker, "epoch": step.epoch, "result": { "outcome": "completed", "output": { "step": "sung" } },
    });
    let path = format!("/steps/{}/report", step.step);
    let answer = server.call(Method::POST, &path, WORKER).json(&unknown).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "request.invalid"));
    assert_eq!(server.report(&worker, &step, completed()).await, ReportResult::Committed);
    server.stop().await;
}

#[tokio::test]
async fn steps_of_agents_never_leave_the_server() {
    let agents = FakeAgents::new(Behaviour::Hangs);
    let (server, _folder) = TestServer::start(Wish { agents: agents.clone(), ..Wish::default() }).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    server.report(&worker, &step, completed()).await;
    agents.began().await;
    assert!(server.claim(&worker, 0).await.is_empty());
    let plan = server.run(&run).await.open_steps.into_iter().find(|step| step.key == PLAN).unwrap();
    let report = Report { worker: plan.worker.unwrap(), epoch: plan.epoch, result: TryOutcome::Cancelled, free: None };
    let path = format!("/steps/{}/report", plan.id);
    let answer = server.call(Method::POST, &path, WORKER).json(&report).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(403, "auth.route_not_allowed"));
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_step_reaches_its_worker_with_the_next_heartbeat() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let cancel = Control { action: ControlAction::Cancel };
    let answer = server.post(&format!("/runs/{run}/control")).json(&cancel).send().await.unwrap();
    assert!(answer.status().is_success());
    let beat = server.heartbeat(&worker, &[(step.step.clone(), step.epoch)]).await;
    assert_eq!(beat.cancelled, std::slice::from_ref(&step.step));
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Cancelling);
    assert_eq!(server.report(&worker, &step, TryOutcome::Cancelled).await, ReportResult::Committed);
    server.until_status(&run, RunStatus::Cancelled).await;
    assert_eq!(server.report(&worker, &step, TryOutcome::Cancelled).await, ReportResult::Committed);
    server.stop().await;
}

#[tokio::test]
async fn a_worker_that_stops_without_being_asked_gives_the_step_back() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    assert_eq!(server.report(&worker, &step, TryOutcome::Cancelled).await, ReportResult::Committed);
    let again = server.claim_one(&worker).await;
    assert_eq!((&again.step, again.epoch), (&step.step, 2));
    assert_eq!(server.run(&run).await.summary.status, RunStatus::Running);
    server.stop().await;
}

#[tokio::test]
async fn a_failed_try_is_repeated_and_a_fatal_one_ends_the_run_until_a_retry() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    let first = server.claim_one(&worker).await;
    let passing = TryOutcome::Failed { failure: StepFailure::retriable("worker.busy", "no memory") };
    assert_eq!(server.report(&worker, &first, passing).await, ReportResult::Committed);
    let second = server.claim_one(&worker).await;
    assert_eq!(second.epoch, 2);
    let fatal = TryOutcome::Failed { failure: StepFailure::fatal("toolchain.missing", "no compiler") };
    server.report(&worker, &second, fatal).await;
    server.until_status(&run, RunStatus::Failed).await;
    assert_eq!(server.run(&run).await.summary.failure.unwrap().code, "toolchain.missing");

    let retry = |body: serde_json::Value| server.post(&format!("/runs/{run}/retry")).json(&body).send();
    let unknown = retry(serde_json::json!({ "step_key": "nothing" })).await.unwrap();
    assert_eq!(unknown.status().as_u16(), 404);
    assert!(retry(serde_json::json!({})).await.unwrap().status().is_success());
    let third = server.claim_one(&worker).await;
    assert_eq!(server.report(&worker, &third, completed()).await, ReportResult::Committed);
    server.until_status(&run, RunStatus::Completed).await;
    let not_failed = retry(serde_json::json!({})).await.unwrap();
    assert_eq!(refused(not_failed).await, refusal(409, "request.illegal_transition"));
    server.stop().await;
}

#[tokio::test]
async fn a_failure_without_end_is_given_up_after_its_tries() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (_, run) = server.campaign().await;
    let worker = server.register().await;
    for _ in 0..3 {
        let step = server.claim_one(&worker).await;
        let outcome = TryOutcome::Failed { failure: StepFailure::retriable("worker.busy", "no memory") };
        server.report(&worker, &step, outcome).await;
    }
    server.until_status(&run, RunStatus::Failed).await;
    let failure = server.run(&run).await.summary.failure.unwrap();
    assert!(failure.message.contains("3 tries"), "{}", failure.message);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_worker_gets_no_steps() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let unknown: WorkerId = format!("wrk_{}", "0".repeat(32)).parse().unwrap();
    assert_eq!(refused(server.try_claim(&unknown, 0).await).await, refusal(404, "worker.not_found"));
    let path = format!("/workers/{unknown}/heartbeat");
    let answer = server.call(Method::POST, &path, WORKER).json(&serde_json::json!({ "leases": [] })).send().await;
    assert_eq!(refused(answer.unwrap()).await, refusal(404, "worker.not_found"));
    let step: StepId = format!("stp_{}", "0".repeat(32)).parse().unwrap();
    let report = Report { worker: unknown, epoch: 1, result: TryOutcome::Cancelled, free: None };
    let answer = server.call(Method::POST, &format!("/steps/{step}/report"), WORKER).json(&report).send().await;
    assert_eq!(refused(answer.unwrap()).await, refusal(404, "step.not_found"));
    server.stop().await;
}

#[tokio::test]
async fn a_registration_out_of_bounds_is_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let register = |name: String, offers: Offers| {
        let worker = RegisterWorker { name, embedded: false, offers, version: "0".to_owned() };
        server.call(Method::POST, "/workers", WORKER).json(&worker).send()
    };
    let mut greedy = offers();
    greedy.cpu_slots = u32::MAX;
    let mut twice = offers();
    twice.devices.push(twice.devices[0].clone());
    let mut large = offers();
    large.machine.features = vec!["avx512f".to_owned(); 10_000];
    let wrong = [
        (String::new(), offers()),
        ("n".repeat(201), offers()),
        ("n".to_owned(), greedy),
        ("n".to_owned(), twice),
        ("n".to_owned(), large),
    ];
    for (name, offers) in wrong {
        assert_eq!(refused(register(name, offers).await.unwrap()).await, refusal(400, "request.invalid"));
    }
    let mut repeated = offers();
    repeated.targets = vec![Target::Cpu; 100_000];
    assert_eq!(register("n".to_owned(), repeated).await.unwrap().status().as_u16(), 201);
    let listed: Page<WorkerView> = server.read("/workers").await;
    assert_eq!(listed.items.iter().find(|worker| worker.name == "n").unwrap().offers.targets, [Target::Cpu]);
    let worker = server.register().await;
    let bare = server.bare(Method::POST, &format!("/api/v1/workers/{worker}/claim")).body("{}").send().await.unwrap();
    assert_eq!(refused(bare).await, refusal(401, "auth.required"));
    server.stop().await;
}

#[tokio::test]
async fn workers_are_listed_with_what_they_hold() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    server.campaign().await;
    let worker = server.register().await;
    server.claim_one(&worker).await;
    let listed: Page<WorkerView> = server.read("/workers").await;
    let found = listed.items.iter().find(|listed| listed.id == worker).unwrap();
    assert_eq!((found.name.as_str(), found.leases, found.embedded), ("box", 1, false));
    // The server's agents are a worker like any other.
    let agents = until("the registration of the agents", || async {
        let listed: Page<WorkerView> = server.read("/workers").await;
        listed.items.into_iter().find(|listed| listed.embedded)
    });
    assert_eq!(agents.await.name, "agents");
    assert_eq!(server.call(Method::GET, "/workers", OPERATOR).send().await.unwrap().status().as_u16(), 200);
    server.stop().await;
}

#[tokio::test]
async fn device_readings_are_listed_with_their_worker() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let worker = server.register().await;
    let listed = async || {
        let listed: Page<WorkerView> = server.read("/workers").await;
        listed.items.into_iter().find(|listed| listed.id == worker).unwrap()
    };
    assert_eq!((listed().await.readings.len(), listed().await.read_at), (0, None));
    let of = |device: u32| DeviceReading { device, temperature_c: Some(57), busy_ms: 1_000, over_ms: 4_000 };
    let offered = listed().await.offers.devices[0].index;
    let readings = vec![of(offered), of(offered), of(offered + 40)];
    let heartbeat = Heartbeat { leases: Vec::new(), quarantined: None, leaving: false, readings: Some(readings) };
    let path = format!("/workers/{worker}/heartbeat");
    let told = server.call(Method::POST, &path, WORKER).json(&heartbeat).send().await.unwrap();
    assert_eq!(told.status().as_u16(), 200);
    let found = listed().await;
    assert_eq!(found.readings, [of(offered)], "once, and nothing of a device that it does not have");
    assert!(found.read_at.is_some());
    // A heartbeat without devices changes nothing.
    server.heartbeat(&worker, &[]).await;
    assert_eq!(listed().await.readings, [of(offered)]);
    server.stop().await;
}
