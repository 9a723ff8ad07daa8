//! Tests of requests: leased to one agent at a time, answered once, and not lost with an agent or a server.

use nightshift_engine::store::{
    NewRequest, PageRequest, QueueStore as _, RequestAnswer, RequestFilter, RequestLease, RequestStanding,
    RequestStore as _, RetentionStore as _, RunControlStore as _, StoreError, TryEnd,
};
use nightshift_protocol::api::{LeasedRequest, RequestQuestion, RequestState};
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{RequestId, RunId};
use nightshift_protocol::model_call::FellBack;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::run::{RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;

use crate::bench::Bench;

crate::bench::on_both!(
    the_same_question_of_a_step_is_one_request,
    a_request_is_handed_out_once_its_step_waits_and_to_one_agent_at_a_time,
    an_answer_wakes_its_step_and_is_found_by_the_next_try,
    the_same_answer_again_is_fine_and_another_one_is_refused,
    a_lease_that_ran_out_answers_until_another_one_takes_its_place,
    a_request_that_was_given_back_is_handed_out_at_once,
    a_lease_is_extended_by_who_holds_it_and_ends_with_the_deadline,
    no_answer_is_accepted_after_the_deadline_and_a_retried_run_asks_again,
    a_deadline_never_lies_behind_the_wall_time_of_the_campaign,
    requests_of_a_paused_run_wait_and_those_of_a_cancelled_one_are_over,
    an_answer_during_a_pause_is_kept_for_the_resume,
    a_pause_beyond_the_deadline_costs_a_request_nothing,
    a_waiting_try_does_not_count_and_its_answer_comes_while_it_is_carried_out_again,
    agents_take_only_what_they_ask_for,
    requests_are_listed_newest_first_and_go_with_their_run,
);

const DEADLINE_MS: u64 = 60_000;

fn question() -> RequestQuestion {
    RequestQuestion {
        system: "You plan.".to_owned(),
        user: "Plan a softmax.\0".to_owned(),
        earlier: Vec::new(),
        schema: Some(json!({ "type": "object" })),
        form: None,
        turn_form: None,
        max_output_tokens: 100,
    }
}

fn answer(text: &str) -> RequestAnswer {
    RequestAnswer { text: text.to_owned(), input_tokens: Some(7), output_tokens: None, model: Some("gpt".to_owned()) }
}

fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    result.unwrap_err().code()
}

impl Bench {
    /// Opens a request of a step of this key, which is scheduled and claimed for it.
    async fn open(&self, run: &RunId, key: &str, role: AgentRole) -> RequestStanding {
        self.schedule(run, &[key]).await;
        let worker = self.worker().await;
        let step = self.claim(&worker, 1).await.remove(0);
        let standing = self.store.open_request(self.new_request(run, key, role).await).await.unwrap();
        let failure = StepFailure::retriable("request.open", "an agent is to answer");
        self.report(&step, TryEnd::Wait { failure, at: standing.deadline }).await;
        self.assert_sound().await;
        standing
    }

    async fn new_request(&self, run: &RunId, key: &str, role: AgentRole) -> NewRequest {
        NewRequest {
            id: RequestId::from_uuid(self.uuid()),
            run: run.clone(),
            step: self.step(run, key).await.id,
            step_key: key.to_owned(),
            turn: 1,
            request_hash: "hash".to_owned(),
            role,
            model: "external/agent".to_owned(),
            question: question(),
            fell_back: vec![FellBack { model: "a/b".to_owned(), code: "model.unreachable".to_owned() }],
            at: self.now(),
            deadline: self.now().plus_ms(DEADLINE_MS),
        }
    }

    async fn lease_one(&self, filter: RequestFilter, token: &str, lease_ms: u64) -> Option<LeasedRequest> {
        let until = self.now().plus_ms(lease_ms);
        let lease = RequestLease { token: token.to_owned(), holder: "agent 7".to_owned(), until };
        self.store.lease_request(filter, lease, self.now()).await.unwrap()
    }

    async fn take_any(&self, token: &str) -> Option<LeasedRequest> {
        self.lease_one(RequestFilter::default(), token, 10_000).await
    }

    async fn answer(&self, id: &RequestId, lease: &str, text: &str) -> Result<bool, StoreError> {
        self.store.answer_request(id, lease, answer(text), self.now()).await
    }

    async fn state(&self, id: &RequestId) -> RequestState {
        self.store.load_request(id, self.now()).await.unwrap().request.state
    }
}

async fn the_same_question_of_a_step_is_one_request(bench: Bench) {
    let run = bench.run().await;
    let first = bench.open(&run, "plan", AgentRole::Planner).await;
    let again = bench.new_request(&run, "plan", AgentRole::Planner).await;
    let later = NewRequest { deadline: bench.now().plus_ms(1), ..again.clone() };
    assert_eq!(bench.store.open_request(later).await.unwrap(), first);
    assert_eq!(bench.store.find_request(&run, "plan", 1, "hash").await.unwrap(), Some(first.clone()));
    assert_eq!(bench.store.find_request(&run, "plan", 2, "hash").await.unwrap(), None);
    let other = NewRequest { turn: 2, ..again.clone() };
    assert_ne!(bench.store.open_request(other).await.unwrap().id, first.id);
    let foreign = NewRequest { run: bench.run().await, ..again };
    assert_eq!(code(bench.store.open_request(foreign).await), "step.not_found");
}

async fn a_request_is_handed_out_once_its_step_waits_and_to_one_agent_at_a_time(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["plan"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let opened = bench.store.open_request(bench.new_request(&run, "plan", AgentRole::Planner).await).await.unwrap();
    assert_eq!(bench.take_any("one").await, None, "its step is being carried out");
    let failure = StepFailure::retriable("request.open", "an agent is to answer");
    bench.report(&step, TryEnd::Wait { failure, at: opened.deadline }).await;
    let taken = bench.take_any("one").await.unwrap();
    assert_eq!((taken.lease.as_str(), &taken.request.id), ("one", &opened.id));
    assert_eq!(taken.question.user, "Plan a softmax.\u{fffd}");
    assert_eq!(taken.question.schema, question().schema);
    assert_eq!(taken.request.holder.as_deref(), Some("agent 7"));
    assert_eq!(taken.request.leased_until, Some(bench.now().plus_ms(10_000)));
    assert_eq!(bench.store.load_request(&opened.id, bench.now()).await.unwrap().request, taken.request);
    assert_eq!(bench.take_any("two").await, None);
    bench.clock.forward(10_000);
    assert_eq!(bench.state(&opened.id).await, RequestState::Open);
    assert_eq!(bench.take_any("two").await.unwrap().request.id, opened.id, "the first agent never answered");
}

async fn an_answer_wakes_its_step_and_is_found_by_the_next_try(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    let worker = bench.worker().await;
    assert!(bench.claim(&worker, 1).await.is_empty());
    bench.take_any("one").await.unwrap();
    bench.clock.forward(500);
    assert!(!bench.answer(&opened.id, "one", "a plan").await.unwrap());
    bench.assert_sound().await;
    let claimed = bench.claim(&worker, 1).await;
    assert_eq!(claimed[0].key, "plan");
    let found = bench.store.find_request(&run, "plan", 1, "hash").await.unwrap().unwrap();
    assert_eq!(found.answer, Some((answer("a plan"), bench.now())));
    let loaded = bench.store.load_request(&opened.id, bench.now()).await.unwrap();
    assert_eq!(loaded.answer.as_deref(), Some("a plan"));
    assert_eq!(found.fell_back[0].model, "a/b");
    assert_eq!(bench.state(&opened.id).await, RequestState::Answered);
    assert_eq!(bench.take_any("two").await, None);
}

async fn the_same_answer_again_is_fine_and_another_one_is_refused(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.take_any("one").await.unwrap();
    assert_eq!(code(bench.answer(&opened.id, "two", "a plan").await), "request.lease_lost");
    assert!(!bench.answer(&opened.id, "one", "a plan").await.unwrap());
    assert!(bench.answer(&opened.id, "one", "a plan").await.unwrap());
    assert_eq!(code(bench.answer(&opened.id, "one", "another").await), "request.answered");
    let unknown = RequestId::from_uuid(bench.uuid());
    assert_eq!(code(bench.answer(&unknown, "one", "a plan").await), "request.not_found");
    let found = bench.store.find_request(&run, "plan", 1, "hash").await.unwrap().unwrap();
    assert_eq!(found.answer.unwrap().0.text, "a plan");
}

async fn a_lease_that_ran_out_answers_until_another_one_takes_its_place(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.take_any("one").await.unwrap();
    bench.clock.forward(11_000);
    bench.take_any("two").await.unwrap();
    assert_eq!(code(bench.answer(&opened.id, "one", "late").await), "request.lease_lost");
    bench.clock.forward(11_000);
    assert!(!bench.answer(&opened.id, "two", "late too").await.unwrap());
}

async fn a_request_that_was_given_back_is_handed_out_at_once(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.take_any("one").await.unwrap();
    assert_eq!(code(bench.store.release_request(&opened.id, "two", bench.now()).await), "request.lease_lost");
    bench.store.release_request(&opened.id, "one", bench.now()).await.unwrap();
    bench.store.release_request(&opened.id, "one", bench.now()).await.unwrap();
    assert_eq!(bench.take_any("two").await.unwrap().request.id, opened.id);
}

async fn a_lease_is_extended_by_who_holds_it_and_ends_with_the_deadline(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.take_any("one").await.unwrap();
    let until = bench.now().plus_ms(30_000);
    let extended = bench.store.extend_request(&opened.id, "one", until, bench.now()).await.unwrap();
    assert_eq!((extended.state, extended.leased_until), (RequestState::Leased, Some(until)));
    let beyond = bench.now().plus_ms(DEADLINE_MS * 2);
    let extended = bench.store.extend_request(&opened.id, "one", beyond, bench.now()).await.unwrap();
    assert_eq!(extended.leased_until, Some(opened.deadline));
    assert_eq!(code(bench.store.extend_request(&opened.id, "two", until, bench.now()).await), "request.lease_lost");
}

async fn no_answer_is_accepted_after_the_deadline_and_a_retried_run_asks_again(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.lease_one(RequestFilter::default(), "one", DEADLINE_MS * 2).await.unwrap();
    bench.clock.forward(i64::try_from(DEADLINE_MS).unwrap());
    assert_eq!(bench.state(&opened.id).await, RequestState::Expired);
    assert_eq!(code(bench.answer(&opened.id, "one", "late").await), "request.expired");
    bench.store.fire_timers(bench.now(), 9).await.unwrap();
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let failure = StepFailure::fatal("request.expired", "no agent answered");
    bench.report(&step, TryEnd::Failed { failure: failure.clone() }).await;
    bench.fail_run(&run, failure).await;
    bench.store.retry_run(&run, None, None, bench.now()).await.unwrap();
    let anew = bench.store.open_request(bench.new_request(&run, "plan", AgentRole::Planner).await).await.unwrap();
    assert_ne!(anew.id, opened.id);
    assert_eq!(anew.deadline, bench.now().plus_ms(DEADLINE_MS));
}

async fn a_deadline_never_lies_behind_the_wall_time_of_the_campaign(bench: Bench) {
    let began = bench.now();
    let (_, run) = bench.run_with_budget(BudgetCaps { wall_ms: Some(20_000), ..BudgetCaps::default() }).await;
    bench.schedule(&run, &["plan"]).await;
    let new = bench.new_request(&run, "plan", AgentRole::Planner).await;
    let opened = bench.store.open_request(new).await.unwrap();
    assert_eq!(opened.deadline, began.plus_ms(20_000));
}

async fn requests_of_a_paused_run_wait_and_those_of_a_cancelled_one_are_over(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    let control = |transition| bench.store.control_run(&run, transition, None, bench.now());
    control(RunTransition::Pause).await.unwrap();
    assert_eq!(bench.take_any("one").await, None);
    assert_eq!(bench.state(&opened.id).await, RequestState::Open);
    control(RunTransition::Resume).await.unwrap();
    bench.take_any("one").await.unwrap();
    control(RunTransition::Cancel).await.unwrap();
    assert_eq!(bench.state(&opened.id).await, RequestState::Cancelled);
    assert_eq!(code(bench.answer(&opened.id, "one", "a plan").await), "request.cancelled");
    let extended = bench.store.extend_request(&opened.id, "one", bench.now(), bench.now()).await;
    assert_eq!(code(extended), "request.cancelled");
    bench.store.release_request(&opened.id, "one", bench.now()).await.unwrap();
    bench.assert_sound().await;
}

async fn an_answer_during_a_pause_is_kept_for_the_resume(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    bench.take_any("one").await.unwrap();
    bench.store.control_run(&run, RunTransition::Pause, None, bench.now()).await.unwrap();
    assert!(!bench.answer(&opened.id, "one", "a plan").await.unwrap());
    bench.assert_sound().await;
    let worker = bench.worker().await;
    assert!(bench.claim(&worker, 1).await.is_empty());
    bench.store.control_run(&run, RunTransition::Resume, None, bench.now()).await.unwrap();
    assert_eq!(bench.claim(&worker, 1).await.len(), 1);
}

async fn a_pause_beyond_the_deadline_costs_a_request_nothing(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    let control = |transition| bench.store.control_run(&run, transition, None, bench.now());
    for pause in [3, 2] {
        control(RunTransition::Pause).await.unwrap();
        bench.clock.forward(i64::try_from(DEADLINE_MS).unwrap() * pause);
        bench.store.fire_timers(bench.now(), 9).await.unwrap();
        assert_eq!(bench.state(&opened.id).await, RequestState::Expired);
        control(RunTransition::Resume).await.unwrap();
        let again = bench.store.open_request(bench.new_request(&run, "plan", AgentRole::Planner).await).await.unwrap();
        assert_eq!((&again.id, again.deadline), (&opened.id, bench.now().plus_ms(DEADLINE_MS)));
        assert_eq!(bench.state(&opened.id).await, RequestState::Open);
    }
    bench.assert_sound().await;
}

async fn a_waiting_try_does_not_count_and_its_answer_comes_while_it_is_carried_out_again(bench: Bench) {
    let run = bench.run().await;
    let opened = bench.open(&run, "plan", AgentRole::Planner).await;
    let waiting = bench.step(&run, "plan").await;
    assert_eq!((waiting.tries, waiting.status), (0, StepStatus::Scheduled));
    assert_eq!(waiting.not_before, Some(opened.deadline));
    assert_eq!(waiting.failure.unwrap().code, "request.open");
    bench.take_any("one").await.unwrap();
    bench.clock.forward(i64::try_from(DEADLINE_MS).unwrap() - 1);
    bench.store.fire_timers(TimestampMs(bench.now().0 + 1), 9).await.unwrap();
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    assert_eq!(step.tries, 1);
    assert_eq!(code(bench.answer(&opened.id, "one", "a plan").await), "request.busy");
    let failure = StepFailure::retriable("request.open", "an agent is to answer");
    bench.report(&step, TryEnd::Wait { failure, at: opened.deadline }).await;
    assert!(!bench.answer(&opened.id, "one", "a plan").await.unwrap());
    assert_eq!(bench.claim(&worker, 1).await.len(), 1);
}

async fn agents_take_only_what_they_ask_for(bench: Bench) {
    let (planned, coded) = (bench.run().await, bench.run().await);
    let plan = bench.open(&planned, "plan", AgentRole::Planner).await;
    let code = bench.open(&coded, "code", AgentRole::Coder).await;
    let coders = RequestFilter { roles: vec![AgentRole::Judge, AgentRole::Coder], ..RequestFilter::default() };
    assert_eq!(bench.lease_one(coders.clone(), "one", 1_000).await.unwrap().request.id, code.id);
    assert_eq!(bench.lease_one(coders, "two", 1_000).await, None);
    let of_run = RequestFilter { run: Some(coded), ..RequestFilter::default() };
    assert_eq!(bench.lease_one(of_run, "two", 1_000).await, None);
    let to_model = RequestFilter { model: Some("external/other".to_owned()), ..RequestFilter::default() };
    assert_eq!(bench.lease_one(to_model, "two", 1_000).await, None);
    let campaign = bench.store.load_request(&plan.id, bench.now()).await.unwrap().request.campaign;
    let of_campaign = RequestFilter { campaign: Some(campaign), ..RequestFilter::default() };
    assert_eq!(bench.lease_one(of_campaign, "two", 1_000).await.unwrap().request.id, plan.id);
}

async fn requests_are_listed_newest_first_and_go_with_their_run(bench: Bench) {
    let (first_run, second_run) = (bench.run().await, bench.run().await);
    let first = bench.open(&first_run, "plan", AgentRole::Planner).await;
    let second = bench.open(&second_run, "plan", AgentRole::Planner).await;
    bench
        .lease_one(RequestFilter { run: Some(first_run.clone()), ..RequestFilter::default() }, "one", 1_000)
        .await
        .unwrap();
    bench.answer(&first.id, "one", "a plan").await.unwrap();
    let list = async |filter: RequestFilter, waiting: bool, page: PageRequest| {
        let listed = bench.store.list_requests(&filter, waiting, &page, bench.now()).await.unwrap();
        listed.into_iter().map(|row| (row.place, row.item.id)).collect::<Vec<_>>()
    };
    let page = |limit, before| PageRequest { limit, before };
    let all = list(RequestFilter::default(), false, page(9, None)).await;
    assert_eq!(all.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>(), [second.id.clone(), first.id.clone()]);
    let waiting = list(RequestFilter::default(), true, page(9, None)).await;
    assert_eq!(waiting.len(), 1);
    let after = list(RequestFilter::default(), false, page(1, Some(all[0].0.to_string()))).await;
    assert_eq!(after[0].1, first.id);
    let of_run = RequestFilter { run: Some(first_run.clone()), ..RequestFilter::default() };
    assert_eq!(list(of_run, false, page(9, None)).await.len(), 1);
    let campaign = bench.store.load_request(&first.id, bench.now()).await.unwrap().request.campaign;
    bench.complete_run(&first_run).await;
    assert_eq!(bench.store.prune_campaign(&campaign, 1_000).await.unwrap().campaigns, 1);
    assert_eq!(code(bench.store.load_request(&first.id, bench.now()).await), "request.not_found");
    assert_eq!(bench.state(&second.id).await, RequestState::Open);
}
