//! The pool without processes.

use nightshift_sandbox::process::{JailHost, SandboxChoice};

use super::*;

#[test]
fn the_end_of_a_start_concerns_its_own_kind() {
    let kind = |python| ProcessKind { python, device: None };
    let mut state = State { starting: vec![kind(true), kind(false)], ..State::default() };
    state.no_longer_starts(&kind(true));
    assert_eq!(state.starting, [kind(false)], "a process of the other kind still starts");
    state.no_longer_starts(&kind(true));
    assert_eq!(state.starting.len(), 1);
}

fn pool(starting: Vec<ProcessKind>) -> ProcessPool {
    let jail = JailHost::new("/proc/self/exe".into(), SandboxChoice::None);
    let host = Host { jail, python: None, scratch: std::env::temp_dir() };
    let pool = ProcessPool::new(host, Arc::default(), 12, None);
    pool.shared.state().starting = starting;
    pool
}

#[test]
fn a_paused_pool_waits_for_processes_that_start_and_starts_no_others() {
    let kind = ProcessKind { python: false, device: None };
    let pool = pool(vec![kind.clone()]);
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| pool.pause(&CancelFlag::default()));
        while pool.shared.state().pauses == 0 {
            std::thread::yield_now();
        }
        assert!(!paused.is_finished(), "a process is starting");
        pool.shared.state().no_longer_starts(&kind);
        pool.shared.changed.notify_all();
        let paused = paused.join().unwrap_or_else(|_| panic!("the thread panicked"));
        pool.shared.replenish(&kind);
        assert_eq!(pool.shared.state().starting, [], "none is started ahead of time");
        drop(paused);
        assert!(pool.shared.state().keeps_any());
    });
}

#[test]
fn a_cancelled_step_does_not_wait_for_a_process_that_starts() {
    let kind = ProcessKind { python: false, device: None };
    let (pool, cancel) = (pool(vec![kind.clone()]), CancelFlag::default());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.checkout(&kind, &cancel).map(|_| ()));
        cancel.cancel();
        let checked_out = waiting.join().unwrap_or_else(|_| panic!("the thread panicked"));
        assert!(
            checked_out.is_err_and(|error| error.into_end().is_err_and(|failure| failure.code == "step.cancelled"))
        );
    });
    pool.shared.state().starting.clear();
}

#[test]
fn the_end_of_a_pool_waits_for_processes_that_start_and_cancels_them() {
    let kind = ProcessKind { python: false, device: None };
    let pool = pool(vec![kind.clone()]);
    let shared = Arc::clone(&pool.shared);
    std::thread::scope(|scope| {
        let ends = scope.spawn(move || drop(pool));
        while !shared.state().closed {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ends.is_finished(), "a process is starting");
        assert!(shared.cancel.is_cancelled() && !shared.state().keeps_any());
        shared.state().no_longer_starts(&kind);
        shared.changed.notify_all();
        ends.join().unwrap_or_else(|_| panic!("the thread panicked"));
    });
}

#[test]
fn no_process_waits_that_a_known_demand_does_not_need() {
    let kind = |python| ProcessKind { python, device: None };
    let demand = ProcessDemand { native: SPARE + 1, python: 1 };
    let mut state = State { demand: Some(demand), ..State::default() };
    assert_eq!((state.spare_wanted(&kind(false)), state.spare_wanted(&kind(true))), (SPARE, 1));
    for _ in 0..SPARE {
        state.take_from_demand(&kind(false));
    }
    assert_eq!((state.spare_wanted(&kind(false)), state.spare_wanted(&kind(true))), (1, 1));
    // More than was expected: they start when they are needed.
    for _ in 0..3 {
        state.take_from_demand(&kind(false));
    }
    assert_eq!(state.spare_wanted(&kind(false)), 0);
    assert_eq!(State::default().spare_wanted(&kind(true)), SPARE);
}
