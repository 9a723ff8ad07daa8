//! Tests of hand-overs: only one machine has a campaign at a time, and its results are merged once.

use nightshift_engine::store::{
    Advanced, ArchiveStore as _, ArtifactStore as _, BudgetStore as _, CampaignArchive, ChangeStore as _, Creation,
    CreationStore as _, FinishedHandover, HandoverRecord, HandoverStore as _, NewHandover, NewRequest, Ownership,
    OwnershipStore as _, Reported, RequestAnswer, RequestFilter, RequestLease, RequestStore as _, RetentionStore as _,
    ReturnedHandover, RunControlStore as _, RunStore as _, StoreError, TeamStore as _, TryEnd,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::api::{HandoverState, Remark, RequestQuestion, RequestState, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::handover::result_rows;
use nightshift_protocol::id::{CampaignId, HandoverId, RemarkId, RequestId, RunId};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use serde_json::{Value, json};

use crate::bench::{Bench, amount, done, order};
use crate::place::Kind;

crate::bench::on_both!(
    nothing_moves_a_campaign_that_is_handed_over,
    steps_in_flight_end_or_are_given_back_and_late_reports_change_nothing,
    no_server_decides_for_a_campaign_that_is_handed_over,
    results_come_back_once_and_the_run_goes_on,
    rows_that_changed_are_enough,
    changes_of_people_and_agents_during_a_handover_stay,
    runs_that_were_paused_or_over_stay_as_they_are,
    a_campaign_that_was_taken_back_goes_on_and_takes_no_results,
    another_file_of_the_same_handover_is_refused,
    results_that_do_not_continue_the_history_change_nothing,
    results_change_nothing_of_other_campaigns,
    artifacts_that_results_leave_out_are_here,
    a_campaign_goes_out_and_comes_back_again_and_again,
    a_campaign_without_work_is_not_handed_over_and_handovers_go_with_their_campaign,
    a_run_that_is_retried_meanwhile_goes_along_or_stays_failed,
);

fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    result.unwrap_err().code()
}

impl Bench {
    async fn begin(&self, campaign: &CampaignId) -> Result<HandoverRecord, StoreError> {
        let new = NewHandover {
            id: HandoverId::from_uuid(self.uuid()),
            campaign: campaign.clone(),
            key: "0f".repeat(32),
            by: "ada".to_owned(),
            at: self.now(),
        };
        self.store.begin_handover(new).await
    }

    /// Checks the campaign out at once.
    async fn hand_over(&self, campaign: &CampaignId) -> HandoverRecord {
        let handover = self.begin(campaign).await.unwrap();
        let out = self.store.check_out(&handover.id, true, self.now()).await.unwrap();
        assert_eq!(out.state, HandoverState::Out);
        self.assert_sound().await;
        out
    }

    async fn finish(&self, id: &HandoverId, digest: &str, rows: Vec<Value>) -> Result<FinishedHandover, StoreError> {
        let (id, digest, by) = (id.clone(), digest.to_owned(), "ada".to_owned());
        let (artifacts, at) = (Vec::new(), self.now());
        let finished = self.store.finish_handover(ReturnedHandover { id, digest, rows, artifacts, by, at }).await;
        self.assert_sound().await;
        finished
    }

    /// Returns the campaign on another machine with the other database, where its runs continue.
    async fn elsewhere(&self, handover: &HandoverRecord) -> (Self, CampaignArchive) {
        let archive = self.store.export_campaign(&handover.campaign).await.unwrap();
        let far = Self::on(if self.kind() == Kind::Sqlite { Kind::Postgres } else { Kind::Sqlite }).await;
        // Ids are globally unique.
        for _ in 0..1_000 {
            far.uuid();
        }
        far.store.import_campaign(archive.clone(), far.now()).await.unwrap();
        for run in &handover.runs {
            far.store.control_run(run, RunTransition::Resume, Some("handover"), far.now()).await.unwrap();
        }
        (far, archive)
    }

    /// Completes the step with the lowest rank, which must have this key.
    async fn carry_out(&self, key: &str) {
        let worker = self.worker().await;
        let step = self.claim(&worker, 1).await.remove(0);
        assert_eq!(step.key, key);
        self.report_used(&step, done(json!({ "by": key })), vec![amount(Resource::Tokens, 20)]).await;
    }

    async fn status(&self, run: &RunId) -> RunStatus {
        self.store.load_run(run).await.unwrap().status
    }

    async fn rows(&self, campaign: &CampaignId) -> Vec<Value> {
        self.store.export_campaign(campaign).await.unwrap().rows
    }
}

/// Creates a campaign of one run with the ready steps `first` and `second`.
async fn campaign(bench: &Bench) -> (CampaignId, RunId) {
    let (campaign, run) = bench.run_with_budget(BudgetCaps { tokens: Some(1_000), ..BudgetCaps::default() }).await;
    let dear = |key: &str| StepOrder { reserve: vec![amount(Resource::Tokens, 30)], ..order(key) };
    bench.schedule_orders(&run, vec![dear("first"), dear("second")]).await;
    (campaign, run)
}

async fn nothing_moves_a_campaign_that_is_handed_over(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let handover = bench.begin(&campaign).await.unwrap();
    assert_eq!((handover.state, handover.runs.as_slice()), (HandoverState::Leaving, std::slice::from_ref(&run)));
    assert_eq!(bench.begin(&campaign).await.unwrap(), handover, "the same one is gone on with");
    let refused = "campaign.handed_over";
    for state in [HandoverState::Leaving, HandoverState::Out] {
        for transition in [RunTransition::Pause, RunTransition::Resume, RunTransition::Cancel] {
            assert_eq!(code(bench.store.control_run(&run, transition, None, bench.now()).await), refused, "{state:?}");
        }
        assert_eq!(code(bench.store.retry_run(&run, None, None, bench.now()).await), refused);
        let hint = Signal::Hint { text: "use shared memory".to_owned() };
        assert_eq!(code(bench.store.signal_run(&run, hint, None, None, bench.now()).await), refused);
        let out = bench.store.check_out(&handover.id, false, bench.now()).await.unwrap();
        assert_eq!(out.state, HandoverState::Out);
    }
    assert_eq!(code(bench.begin(&campaign).await), refused);
    let worker = bench.worker().await;
    assert_eq!(bench.claim(&worker, 9).await, []);
    assert_eq!(bench.status(&run).await, RunStatus::Paused);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 0), "nothing stays reserved");
    assert_eq!(bench.store.open_handovers(None).await.unwrap().len(), 1);
    let other = bench.run().await;
    bench.store.control_run(&other, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.assert_sound().await;
}

async fn steps_in_flight_end_or_are_given_back_and_late_reports_change_nothing(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let worker = bench.worker().await;
    let held = bench.claim(&worker, 2).await;
    let handover = bench.begin(&campaign).await.unwrap();
    let waits = bench.store.check_out(&handover.id, false, bench.now()).await.unwrap();
    assert_eq!(waits.state, HandoverState::Leaving);
    assert_eq!(bench.report(&held[0], done(json!(1))).await, Reported::Committed, "what ends in time counts");
    assert_eq!(bench.store.check_out(&handover.id, false, bench.now()).await.unwrap().state, HandoverState::Leaving);
    assert_eq!(bench.store.check_out(&handover.id, true, bench.now()).await.unwrap().state, HandoverState::Out);
    let step = bench.step(&run, "second").await;
    assert_eq!((step.status, step.tries), (StepStatus::Scheduled, 0), "a try that was given back does not count");
    let rows = bench.rows(&campaign).await;
    assert_eq!(bench.report(&held[1], done(json!(2))).await, Reported::LeaseLost);
    assert_eq!(bench.rows(&campaign).await, rows);
    bench.assert_sound().await;
}

async fn no_server_decides_for_a_campaign_that_is_handed_over(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let server = bench.server().await;
    let Ownership::Mine(fence) = bench.store.acquire_run(&server, &run, bench.now()).await.unwrap() else {
        panic!("the run is free");
    };
    let mut decision = bench.decision(&run).await;
    bench.hand_over(&campaign).await;
    decision.revision = bench.store.load_run(&run).await.unwrap().revision;
    decision.fence = Some(fence);
    assert_eq!(bench.store.advance(decision).await.unwrap(), Advanced::NotOwner);
    assert_eq!(
        bench.to_drive().await,
        std::slice::from_ref(&run),
        "the pause asks for a decision, which is made elsewhere"
    );
    assert_eq!(bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap(), []);
    assert_eq!(bench.store.acquire_run(&server, &run, bench.now()).await.unwrap(), Ownership::HandedOver);
    bench.store.cancel_handover(&campaign, "ada", bench.now()).await.unwrap();
    assert_eq!(bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap().len(), 1);
}

async fn results_come_back_once_and_the_run_goes_on(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    let (far, _) = bench.elsewhere(&handover).await;
    far.carry_out("first").await;
    far.schedule(&run, &["third"]).await;
    far.carry_out("second").await;
    far.store.control_run(&run, RunTransition::Pause, None, far.now()).await.unwrap();
    let rows = far.rows(&campaign).await;
    let finished = bench.finish(&handover.id, "digest", rows.clone()).await.unwrap();
    assert!(!finished.repeated);
    assert_eq!(finished.runs, [(run.clone(), RunStatus::Running)]);
    assert_eq!(finished.handover.state, HandoverState::Finished);
    assert_eq!(bench.step(&run, "first").await.output, Some(json!({ "by": "first" })));
    let (here, there) = (bench.log(&run).await, far.log(&run).await);
    assert_eq!(here, [there.as_slice(), ["run_resumed".to_owned()].as_slice()].concat());
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await.0, 40);
    let again = bench.finish(&handover.id, "digest", rows).await.unwrap();
    assert!(again.repeated);
    assert_eq!(bench.log(&run).await, here, "the second time changes nothing");
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await.0, 40);
    bench.carry_out("third").await;
    bench.complete_run(&run).await;
    assert!(bench.store.open_handovers(None).await.unwrap().is_empty());
    bench.assert_sound().await;
}

async fn rows_that_changed_are_enough(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    let (far, archive) = bench.elsewhere(&handover).await;
    far.carry_out("first").await;
    let rows = result_rows(&archive.rows, far.rows(&campaign).await).unwrap();
    assert!(rows.len() < archive.rows.len());
    bench.finish(&handover.id, "digest", rows).await.unwrap();
    assert_eq!(bench.step(&run, "first").await.status, StepStatus::Completed);
    bench.carry_out("second").await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await.0, 40);
    bench.assert_sound().await;
}

async fn changes_of_people_and_agents_during_a_handover_stay(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let request = bench
        .store
        .open_request(NewRequest {
            id: RequestId::from_uuid(bench.uuid()),
            run: run.clone(),
            step: step.id.clone(),
            step_key: step.key.clone(),
            turn: 1,
            request_hash: "hash".to_owned(),
            role: AgentRole::Planner,
            model: "external/agent".to_owned(),
            question: RequestQuestion {
                system: "You plan.".to_owned(),
                user: "Plan.".to_owned(),
                earlier: Vec::new(),
                schema: None,
                form: None,
                turn_form: None,
                max_output_tokens: 9,
            },
            fell_back: Vec::new(),
            at: bench.now(),
            deadline: bench.now().plus_ms(60_000),
        })
        .await
        .unwrap();
    let waits = StepFailure::retriable("request.open", "an agent is to answer");
    bench.report(&step, TryEnd::Wait { failure: waits, at: request.deadline }).await;
    let lease = RequestLease { token: "held".to_owned(), holder: "ada".to_owned(), until: bench.now().plus_ms(50_000) };
    bench.store.lease_request(RequestFilter::default(), lease, bench.now()).await.unwrap().unwrap();
    let handover = bench.hand_over(&campaign).await;
    let (far, _) = bench.elsewhere(&handover).await;
    let target = Target::Campaign(campaign.clone());
    let remark = Remark {
        id: RemarkId::from_uuid(bench.uuid()),
        target: target.clone(),
        text: "away".to_owned(),
        author: "ada".to_owned(),
        created_at: bench.now(),
        edited_at: None,
    };
    bench.store.create(Creation::Note(remark), None).await.unwrap();
    let caps = BudgetCaps { tokens: Some(7_000), ..BudgetCaps::default() };
    bench.store.set_budget(&campaign, caps, bench.now()).await.unwrap();
    let answer = RequestAnswer { text: "A plan.".to_owned(), input_tokens: None, output_tokens: None, model: None };
    bench.store.answer_request(&request.id, "held", answer, bench.now()).await.unwrap();
    let first = far.worker().await;
    let both = far.claim(&first, 2).await;
    let second = both.iter().find(|step| step.key == "second").unwrap();
    far.report(second, done(json!(2))).await;
    bench.finish(&handover.id, "digest", far.rows(&campaign).await).await.unwrap();
    let loaded = bench.store.load_request(&request.id, bench.now()).await.unwrap();
    assert_eq!(loaded.request.state, RequestState::Answered);
    assert_eq!(bench.line(&campaign, Resource::Tokens).await.cap, Some(7_000));
    let among = nightshift_engine::store::Among { target: Some(target), ..Default::default() };
    let page = nightshift_engine::store::PageRequest { limit: 9, before: None };
    assert_eq!(bench.store.list_remarks(&among, &page).await.unwrap().len(), 1);
    let again = bench.claim(&worker, 9).await;
    assert_eq!(again.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["first"], "its answer is there");
    assert!(again[0].epoch > both[0].epoch, "a report from elsewhere would be late");
}

async fn runs_that_were_paused_or_over_stay_as_they_are(bench: Bench) {
    let created = bench.create(bench.new_campaign(3)).await;
    let [running, paused, over] = created.runs.as_slice() else { panic!("three runs") };
    for run in &created.runs {
        bench.schedule(run, &["first"]).await;
    }
    bench.store.control_run(paused, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.fail_run(over, StepFailure::fatal("x", "broken")).await;
    let handover = bench.hand_over(&created.id).await;
    assert_eq!(handover.runs, std::slice::from_ref(running));
    let (far, _) = bench.elsewhere(&handover).await;
    far.carry_out("first").await;
    let finished = bench.finish(&handover.id, "digest", far.rows(&created.id).await).await.unwrap();
    let statuses: Vec<RunStatus> =
        created.runs.iter().map(|id| finished.runs.iter().find(|(run, _)| run == id).unwrap().1).collect();
    assert_eq!(statuses, [RunStatus::Running, RunStatus::Paused, RunStatus::Failed]);
    assert_eq!(bench.step(paused, "first").await.status, StepStatus::Scheduled);
}

async fn a_campaign_that_was_taken_back_goes_on_and_takes_no_results(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    assert_eq!(code(bench.store.cancel_handover(&campaign, "ada", bench.now()).await), "handover.none");
    let handover = bench.hand_over(&campaign).await;
    let (far, _) = bench.elsewhere(&handover).await;
    far.carry_out("first").await;
    let cancelled = bench.store.cancel_handover(&campaign, "ada", bench.now()).await.unwrap();
    assert_eq!(cancelled.state, HandoverState::Cancelled);
    bench.carry_out("first").await;
    let rows = bench.rows(&campaign).await;
    assert_eq!(code(bench.finish(&handover.id, "digest", far.rows(&campaign).await).await), "handover.cancelled");
    assert_eq!(bench.rows(&campaign).await, rows);
    assert_eq!(bench.status(&run).await, RunStatus::Running);
    let unknown = HandoverId::from_uuid(bench.uuid());
    assert_eq!(code(bench.finish(&unknown, "digest", rows).await), "handover.not_found");
}

async fn another_file_of_the_same_handover_is_refused(bench: Bench) {
    let (campaign, _) = campaign(&bench).await;
    let begun = bench.begin(&campaign).await.unwrap();
    let early = bench.rows(&campaign).await;
    assert_eq!(code(bench.finish(&begun.id, "digest", early).await), "handover.not_out");
    let handover = bench.hand_over(&campaign).await;
    assert_eq!(handover.id, begun.id);
    let (far, _) = bench.elsewhere(&handover).await;
    let early = far.rows(&campaign).await;
    far.carry_out("first").await;
    bench.finish(&handover.id, "early", early).await.unwrap();
    let rows = bench.rows(&campaign).await;
    assert_eq!(code(bench.finish(&handover.id, "late", far.rows(&campaign).await).await), "handover.finished");
    assert_eq!(bench.rows(&campaign).await, rows);
}

async fn results_that_do_not_continue_the_history_change_nothing(bench: Bench) {
    let (campaign, _) = campaign(&bench).await;
    let (other, _) = self::campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    let before = bench.rows(&campaign).await;
    let (far, _) = bench.elsewhere(&handover).await;
    far.carry_out("first").await;
    let rows = far.rows(&campaign).await;
    let last = |row: &Value| row["table"] == "event" && row["kind"] == "step_completed";
    let missing: Vec<Value> = rows.iter().filter(|row| !last(row)).cloned().collect();
    let mut rewritten = rows.clone();
    let first = rewritten.iter_mut().find(|row| row["table"] == "event" && row["seq"] == 1).unwrap();
    first["body"] = json!("{}");
    let mut cut_back = rows.clone();
    cut_back.retain(|row| row["table"] != "event");
    cut_back.iter_mut().filter(|row| row["table"] == "run").for_each(|row| row["last_seq"] = json!(1));
    for rows in [missing, rewritten, cut_back, bench.rows(&other).await] {
        assert_eq!(code(bench.finish(&handover.id, "digest", rows).await), "handover.diverged");
        assert_eq!(bench.rows(&campaign).await, before);
    }
    let unusable = vec![json!({ "table": "run_state", "run": rows[0]["run"], "state": 7 })];
    assert_eq!(code(bench.finish(&handover.id, "digest", unusable).await), "archive.unusable");
    assert_eq!(bench.rows(&campaign).await, before);
    bench.finish(&handover.id, "digest", rows).await.unwrap();
}

async fn results_change_nothing_of_other_campaigns(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let (other, other_run) = self::campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    let before = (bench.rows(&campaign).await, bench.rows(&other).await);
    let mut rows = before.0.clone();
    let mut foreign = before.1.iter().find(|row| row["table"] == "step").unwrap().clone();
    assert_eq!(foreign["run"], other_run.as_str());
    foreign["run"] = json!(run);
    foreign["status"] = json!("completed");
    rows.push(foreign);
    assert_eq!(code(bench.finish(&handover.id, "digest", rows.clone()).await), "archive.unusable");
    assert_eq!((bench.rows(&campaign).await, bench.rows(&other).await), before);
    rows.pop();
    let step = bench.step(&other_run, "first").await.id;
    rows.push(json!({ "table": "step_input", "step": step, "input": "\"another\"" }));
    bench.finish(&handover.id, "digest", rows).await.unwrap();
    assert_eq!(bench.rows(&other).await, before.1);
}

async fn artifacts_that_results_leave_out_are_here(bench: Bench) {
    let (campaign, _) = campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    let rows = bench.rows(&campaign).await;
    let returned = ReturnedHandover {
        id: handover.id.clone(),
        digest: "digest".to_owned(),
        rows: rows.clone(),
        artifacts: vec![ArtifactHash::of(b"a program")],
        by: "ada".to_owned(),
        at: bench.now(),
    };
    assert_eq!(code(bench.store.finish_handover(returned.clone()).await), "handover.artifacts_missing");
    assert_eq!(bench.rows(&campaign).await, rows);
    bench.store.put_artifact(&returned.artifacts[0], b"a program", bench.now()).await.unwrap();
    bench.store.finish_handover(returned).await.unwrap();
}

async fn a_campaign_goes_out_and_comes_back_again_and_again(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    for (round, key) in ["first", "second", "third2"].into_iter().enumerate() {
        let handover = bench.hand_over(&campaign).await;
        let (far, archive) = bench.elsewhere(&handover).await;
        for _ in 0..round * 1_000 {
            far.uuid();
        }
        far.carry_out(key).await;
        far.schedule(&run, &[&format!("third{}", round + 1)]).await;
        let digest = format!("digest {round}");
        let rows = result_rows(&archive.rows, far.rows(&campaign).await).unwrap();
        bench.finish(&handover.id, &digest, rows).await.unwrap();
        if round == 1 {
            bench.carry_out("third1").await;
        }
    }
    assert_eq!(bench.step(&run, "third3").await.status, StepStatus::Scheduled);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await.0, 40);
}

async fn a_campaign_without_work_is_not_handed_over_and_handovers_go_with_their_campaign(bench: Bench) {
    let (campaign, run) = campaign(&bench).await;
    let worker = bench.worker().await;
    bench.claim(&worker, 1).await;
    bench.store.control_run(&run, RunTransition::Cancel, None, bench.now()).await.unwrap();
    assert_eq!(code(bench.begin(&campaign).await), "handover.cancelling");
    let (campaign, run) = self::campaign(&bench).await;
    let handover = bench.hand_over(&campaign).await;
    assert_eq!(code(bench.store.prune_campaign(&campaign, 1_000).await), "campaign.not_finished");
    let (far, _) = bench.elsewhere(&handover).await;
    far.complete_run(&run).await;
    bench.clock.forward(3_600_000);
    let finished = bench.finish(&handover.id, "digest", far.rows(&campaign).await).await.unwrap();
    assert_eq!(bench.store.load_run(&run).await.unwrap().finished_at, Some(bench.now()), "it is kept from now on");
    assert_eq!(finished.runs, [(run, RunStatus::Completed)]);
    assert_eq!(code(bench.begin(&campaign).await), "handover.nothing_left");
    assert_eq!(bench.store.prune_campaign(&campaign, 1_000).await.unwrap().campaigns, 1);
    assert_eq!(code(bench.store.load_handover(&handover.id).await), "handover.not_found");
    bench.assert_sound().await;
}

async fn a_run_that_is_retried_meanwhile_goes_along_or_stays_failed(bench: Bench) {
    for _ in 0..10 {
        let created = bench.create(bench.new_campaign(2)).await;
        let [running, failed] = created.runs.as_slice() else { panic!("two runs") };
        bench.schedule(running, &["first"]).await;
        bench.schedule(failed, &["first"]).await;
        bench.fail_run(failed, StepFailure::fatal("x", "broken")).await;
        let retry = bench.store.retry_run(failed, None, None, bench.now());
        let (begun, retried) = tokio::join!(bench.begin(&created.id), retry);
        let handover = bench.store.check_out(&begun.unwrap().id, true, bench.now()).await.unwrap();
        match retried {
            Ok(_) => assert!(handover.runs.contains(failed) && bench.status(failed).await == RunStatus::Paused),
            refused => {
                assert_eq!(code(refused), "campaign.handed_over");
                assert_eq!(bench.status(failed).await, RunStatus::Failed);
            }
        }
        bench.assert_sound().await;
    }
}
