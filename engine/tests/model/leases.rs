//! A model of the steps of one run, from ready to settled, with unreliable workers and messages.
//!
//! A restarted worker has another id and inherits nothing. A worker has one device, asks for a step whenever it is
//! idle, and stops a step when its lease ends by its own clock. That clock counts from the moment of its claim or
//! heartbeat. The clock of a stalled worker stands still until it resumes.
//!
//! A message arrives at any later time, in any order. It may get lost, and a request may arrive twice and be answered
//! twice. A heartbeat takes effect up to one tick after its arrival, because operations wait for the writer. The
//! sweeper finds an expired lease in one action and ends it in another. The rules:
//!
//! * a step has at most one committed result, and its epoch never decreases;
//! * a lease exists exactly while its step is leased, with the step's epoch;
//! * an open step is in exactly one of ready, lease and timer; while its run is paused it may be in none, and then it
//!   is not ready;
//! * a message with a stale epoch changes nothing;
//! * a lease with remaining time is ended only by its own report or with its run;
//! * a lease that had expired when the heartbeat arrived is not extended;
//! * a worker whose clock never stood still works only on steps leased to it;
//! * a committed report is never answered as lost;
//! * no two leases are for one device.

mod check;
mod server;
mod worker;
mod world;

use nightshift_engine::retry::{AfterFailure, RetryPolicy, after_failure};
use nightshift_protocol::step::StepFailure;

use crate::explore::{THE_END_STAYS_WITHIN_REACH, assert_caught, assert_holds};
use check::example;
use check::rule;

/// Capacity of a state for steps and workers.
const STEPS: usize = 2;
const WORKERS: usize = 2;
/// Duration of a lease, in ticks.
const LEASE_TICKS: i8 = 2;
/// Resolution of past times: a heartbeat may wait this long for the writer.
const WAIT_TICKS: i8 = 1;
/// Maximum number of tries of a step.
const MAX_TRIES: u8 = 2;

/// A missing guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// A report ends any lease of its step.
    ReportWithoutEpoch,
    /// The sweeper ends a lease that it found expired, if the epoch still matches.
    SweepWithoutExpiry,
    /// The sweeper ends the lease of a step that it found expired, if the current lease has expired, regardless of its
    /// epoch.
    SweepWithoutEpoch,
    /// A heartbeat extends an expired lease.
    HeartbeatRevives,
    /// A claimed step stays in the ready list.
    ClaimKeepsReady,
    /// A claim ignores the current use of its device.
    ClaimIgnoresDevice,
    /// A worker counts the lease from the arrival of the answer.
    WorkerCountsFromTheAnswer,
    /// A second copy of a committed report is answered as lost.
    CopyAnsweredAsLost,
    /// Resuming a run does not make its steps ready again.
    ResumeForgetsReady,
}

/// A small world, with an optional flaw.
struct Leases {
    flaw: Option<Flaw>,
    /// Number of steps of the run, from 1.
    steps: usize,
    /// Number of workers, from 1.
    workers: usize,
    /// Number of faults: a lost or duplicated message, a crashed or stalled worker.
    faults: u8,
    /// Whether the run is paused, resumed and cancelled.
    controlled: bool,
    /// Whether tries may fail.
    failing: bool,
}

/// One step, two workers, and every fault.
const ONE_STEP: Leases = Leases { flaw: None, steps: 1, workers: 2, faults: 2, controlled: false, failing: false };
/// One step with control and failures.
const CONTROLLED: Leases = Leases { flaw: None, steps: 1, workers: 1, faults: 2, controlled: true, failing: true };
/// Two steps for one device.
const ONE_DEVICE: Leases = Leases { flaw: None, steps: 2, workers: 1, faults: 1, controlled: false, failing: false };

/// Returns whether a step gives up after this many tries, by the engine's own decision.
fn gives_up(tries: u8) -> bool {
    let policy = RetryPolicy { max_tries: u32::from(MAX_TRIES), ..RetryPolicy::default() };
    let lost = StepFailure::retriable("worker.lost", "the lease ran out");
    matches!(after_failure(&policy, u32::from(tries), &lost, 0.0), AfterFailure::GiveUp { .. })
}

#[test]
fn a_step_is_committed_once_whatever_workers_and_messages_do() {
    let examples = [
        example::LATE_REPORT,
        example::COPY_OF_A_REPORT,
        example::LATE_HEARTBEAT,
        example::HELD_IN_THE_QUEUE,
        example::SWEPT,
        example::NOT_SWEPT_ANY_MORE,
        example::TWO_AT_ONCE,
        example::GIVEN_UP,
    ];
    assert_holds("leases, one step", &ONE_STEP, &examples);
}

#[test]
fn a_run_can_be_paused_resumed_and_cancelled_at_any_moment() {
    let examples = [
        example::CANCELLED_BY_ITS_WORKER,
        example::CANCELLED_WITH_ITS_LEASE,
        example::FIRED_WHILE_PAUSED,
        example::RETRIED,
        example::GIVEN_UP,
        example::LATE_REPORT,
    ];
    assert_holds("leases, controlled", &CONTROLLED, &examples);
}

#[test]
fn a_device_has_one_lease_at_a_time() {
    let examples = [example::DEVICE_IN_USE, example::ENDED_WITH_ITS_RUN];
    assert_holds("leases, one device", &ONE_DEVICE, &examples);
}

#[test]
fn a_report_without_the_epoch_check_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::ReportWithoutEpoch), ..ONE_STEP };
    assert_caught("leases, report without epoch", &flawed, rule::STALE_CHANGES_NOTHING);
}

#[test]
fn a_sweeper_that_does_not_check_the_expiry_again_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::SweepWithoutExpiry), ..ONE_STEP };
    assert_caught("leases, sweep without expiry", &flawed, rule::TIME_LEFT_IS_KEPT);
}

#[test]
fn a_sweeper_that_does_not_check_the_epoch_again_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::SweepWithoutEpoch), ..CONTROLLED };
    assert_caught("leases, sweep without epoch", &flawed, rule::STALE_CHANGES_NOTHING);
}

#[test]
fn a_heartbeat_that_extends_an_expired_lease_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::HeartbeatRevives), ..ONE_STEP };
    assert_caught("leases, heartbeat revives", &flawed, rule::OVER_IS_OVER);
}

#[test]
fn a_claim_that_keeps_the_ready_row_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::ClaimKeepsReady), ..ONE_STEP };
    assert_caught("leases, claim keeps ready", &flawed, rule::IN_ONE_PLACE);
}

#[test]
fn a_claim_that_ignores_what_its_device_does_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::ClaimIgnoresDevice), ..ONE_DEVICE };
    assert_caught("leases, claim ignores device", &flawed, rule::ONE_LEASE_PER_DEVICE);
}

#[test]
fn a_worker_that_counts_its_lease_from_the_answer_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::WorkerCountsFromTheAnswer), ..ONE_STEP };
    assert_caught("leases, worker counts from the answer", &flawed, rule::WORKS_UNDER_ITS_LEASE);
}

#[test]
fn a_copy_of_a_report_that_is_answered_as_lost_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::CopyAnsweredAsLost), ..ONE_STEP };
    assert_caught("leases, copy answered as lost", &flawed, rule::COMMITTED_IS_ANSWERED);
}

#[test]
fn a_resume_that_forgets_the_ready_list_is_caught() {
    let flawed = Leases { flaw: Some(Flaw::ResumeForgetsReady), ..CONTROLLED };
    assert_caught("leases, resume forgets ready", &flawed, rule::IN_ONE_PLACE);
}

#[test]
fn a_world_that_cannot_end_is_caught() {
    // A world without workers.
    let flawed = Leases { workers: 0, ..ONE_STEP };
    assert_caught("leases, no workers", &flawed, THE_END_STAYS_WITHIN_REACH);
}
