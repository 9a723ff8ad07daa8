//! Tests of server leases, and of the ownership of runs.

use nightshift_engine::store::{
    Advanced, ArchiveStore, CampaignStore, ChangeStore, Database, NewCampaign, OwnerFence, Ownership, OwnershipStore,
    Reported, RunControlStore, RunStore, ServerRecord, ServerStore,
};
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::run::{RunTransition, StepStatus};
use serde_json::json;

use crate::bench::{Bench, LIFE_MS, done, server_record};
use crate::place::Kind;

crate::bench::on_both!(
    a_server_acquires_runs_that_wait_for_a_decision_and_keeps_its_epoch,
    runs_of_a_living_server_are_left_to_it,
    runs_of_an_expired_server_are_taken_over_under_a_higher_epoch,
    a_server_that_lost_a_run_decides_nothing_any_more,
    a_campaign_may_belong_to_a_server_from_the_start,
    a_server_leaves_runs_of_a_newer_release_alone,
    a_newer_release_takes_runs_of_an_older_one_and_keeps_them,
    an_archive_carries_the_format_of_states,
    the_runs_of_a_retired_server_have_no_owner,
    a_finished_or_unknown_run_has_no_owner,
    a_server_that_is_dead_or_unknown_acquires_nothing,
    leases_of_a_dead_server_s_workers_are_free_at_once_and_their_try_does_not_count,
    a_sole_server_lease_ends_all_earlier_ones,
    a_heartbeat_returns_where_work_is_due,
    a_deleted_server_learns_it_from_its_heartbeat,
    only_a_database_that_machines_share_has_a_clock,
);

async fn acquire(bench: &Bench, server: &ServerId, run: &RunId) -> Ownership {
    bench.store.acquire_run(server, run, bench.now()).await.unwrap()
}

fn fence(server: &ServerId, epoch: u64) -> OwnerFence {
    OwnerFence { server: server.clone(), epoch }
}

async fn a_server_acquires_runs_that_wait_for_a_decision_and_keeps_its_epoch(bench: Bench) {
    let server = bench.server().await;
    let (waits, idle) = (bench.run().await, bench.run().await);
    bench.schedule(&idle, &["a"]).await;
    let acquired = bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap();
    assert_eq!(acquired, [(waits.clone(), fence(&server, 1))]);
    assert_eq!(bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap(), acquired, "it is its own");
    assert_eq!(acquire(&bench, &server, &waits).await, Ownership::Mine(fence(&server, 1)));
    assert_eq!(acquire(&bench, &server, &idle).await, Ownership::Mine(fence(&server, 1)), "one that may wait, too");
    let record = bench.store.load_run(&waits).await.unwrap();
    assert_eq!((record.owner, record.owner_epoch), (Some(server.clone()), 1));
    let more = (bench.run().await, bench.run().await);
    assert_eq!(bench.store.acquire_runs(&server, 2, bench.now()).await.unwrap().len(), 2);
    assert_eq!(bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap().last().unwrap().0, more.1);
    bench.assert_sound().await;
}

async fn runs_of_a_living_server_are_left_to_it(bench: Bench) {
    let (server, other) = (bench.server().await, bench.server().await);
    let run = bench.run().await;
    acquire(&bench, &server, &run).await;
    assert_eq!(acquire(&bench, &other, &run).await, Ownership::Other(server.clone()));
    assert!(bench.store.acquire_runs(&other, 9, bench.now()).await.unwrap().is_empty());
    // A heartbeat keeps it alive.
    bench.clock.forward(9_000);
    let until = bench.now().plus_ms(LIFE_MS);
    assert!(bench.store.pulse(&server, bench.now(), until).await.unwrap().alive);
    bench.clock.forward(9_000);
    bench.store.pulse(&other, bench.now(), bench.now().plus_ms(LIFE_MS)).await.unwrap();
    assert_eq!(acquire(&bench, &other, &run).await, Ownership::Other(server));
}

async fn runs_of_an_expired_server_are_taken_over_under_a_higher_epoch(bench: Bench) {
    let server = bench.server().await;
    let run = bench.run().await;
    acquire(&bench, &server, &run).await;
    bench.clock.forward(10_000);
    let other = bench.server().await;
    let acquired = bench.store.acquire_runs(&other, 9, bench.now()).await.unwrap();
    assert_eq!(acquired, [(run.clone(), fence(&other, 2))]);
    bench.clock.forward(10_000);
    let third = bench.server().await;
    assert_eq!(acquire(&bench, &third, &run).await, Ownership::Mine(fence(&third, 3)));
    bench.assert_sound().await;
}

async fn a_server_that_lost_a_run_decides_nothing_any_more(bench: Bench) {
    let server = bench.server().await;
    let run = bench.run().await;
    acquire(&bench, &server, &run).await;
    let mut late = bench.decision(&run).await;
    late.fence = Some(fence(&server, 1));
    bench.clock.forward(10_000);
    let other = bench.server().await;
    acquire(&bench, &other, &run).await;
    let log = bench.log(&run).await;
    assert_eq!(bench.store.advance(late.clone()).await.unwrap(), Advanced::NotOwner);
    late.fence = Some(fence(&other, 1));
    assert_eq!(bench.store.advance(late.clone()).await.unwrap(), Advanced::NotOwner, "the epoch counts, too");
    assert_eq!(bench.log(&run).await, log);
    late.fence = Some(fence(&other, 2));
    assert!(bench.store.advance(late).await.unwrap().is_committed());
}

async fn a_campaign_may_belong_to_a_server_from_the_start(bench: Bench) {
    let (server, other) = (bench.server().await, bench.server().await);
    let new = NewCampaign { owner: Some(server.clone()), ..bench.new_campaign(2) };
    let runs = bench.create(new).await.runs;
    assert!(bench.store.acquire_runs(&other, 9, bench.now()).await.unwrap().is_empty());
    let acquired = bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap();
    assert_eq!(acquired, [(runs[0].clone(), fence(&server, 1)), (runs[1].clone(), fence(&server, 1))]);
    let stranger = ServerId::from_uuid(bench.uuid());
    let new = NewCampaign { owner: Some(stranger), ..bench.new_campaign(1) };
    assert_eq!(bench.store.create_campaign(new).await.unwrap_err().code(), "server.not_found");
    bench.assert_sound().await;
}

async fn the_runs_of_a_retired_server_have_no_owner(bench: Bench) {
    let (server, other) = (bench.server().await, bench.server().await);
    let run = bench.run().await;
    acquire(&bench, &server, &run).await;
    bench.store.retire_server(&server, bench.now()).await.unwrap();
    bench.store.retire_server(&server, bench.now()).await.unwrap();
    let living = bench.store.list_servers().await.unwrap();
    assert_eq!(living, [server_record(other.clone(), bench.now())]);
    assert_eq!(bench.store.load_run(&run).await.unwrap().owner, None);
    assert_eq!(acquire(&bench, &other, &run).await, Ownership::Mine(fence(&other, 2)));
    bench.assert_sound().await;
}

async fn a_finished_or_unknown_run_has_no_owner(bench: Bench) {
    let server = bench.server().await;
    let run = bench.run().await;
    bench.complete_run(&run).await;
    assert_eq!(acquire(&bench, &server, &run).await, Ownership::Over);
    let unknown = RunId::from_uuid(bench.uuid());
    let error = bench.store.acquire_run(&server, &unknown, bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
}

async fn a_server_that_is_dead_or_unknown_acquires_nothing(bench: Bench) {
    let server = bench.server().await;
    let run = bench.run().await;
    bench.clock.forward(10_000);
    assert!(bench.store.acquire_runs(&server, 9, bench.now()).await.unwrap().is_empty());
    assert_eq!(bench.store.acquire_run(&server, &run, bench.now()).await.unwrap_err().code(), "server.expired");
    let stranger = ServerId::from_uuid(bench.uuid());
    let error = bench.store.acquire_run(&stranger, &run, bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "server.not_found");
}

async fn leases_of_a_dead_server_s_workers_are_free_at_once_and_their_try_does_not_count(bench: Bench) {
    let runs = bench.create(bench.new_campaign(3)).await.runs;
    let (run, paused, cancelled) = (&runs[0], &runs[1], &runs[2]);
    for run in [run, paused, cancelled] {
        bench.schedule(run, &["a"]).await;
    }
    bench.schedule(run, &["remote", "living"]).await;
    let server = bench.server().await;
    let (embedded, remote) = (bench.embedded_worker(&server).await, bench.worker().await);
    let held = bench.claim(&embedded, 3).await;
    let far = bench.claim(&remote, 1).await;
    bench.store.control_run(paused, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.store.control_run(cancelled, RunTransition::Cancel, None, bench.now()).await.unwrap();
    bench.clock.forward(10_000);
    let alive = bench.server().await;
    let neighbour = bench.embedded_worker(&alive).await;
    let living = bench.claim(&neighbour, 1).await;
    assert_eq!(bench.store.reap_servers(bench.now()).await.unwrap(), 3);
    assert_eq!(bench.store.reap_servers(bench.now()).await.unwrap(), 0);
    assert_eq!(bench.store.list_servers().await.unwrap().len(), 1);
    bench.assert_sound().await;

    let step = bench.step(run, "a").await;
    assert_eq!((step.status, step.tries, step.epoch), (StepStatus::Scheduled, 0, 1));
    assert_eq!(bench.step(paused, "a").await.status, StepStatus::Scheduled);
    assert_eq!(bench.step(cancelled, "a").await.status, StepStatus::Cancelled);
    assert_eq!((bench.step(run, "remote").await, bench.step(run, "living").await), (far[0].clone(), living[0].clone()));
    assert_eq!(bench.report(&held[0], done(json!("from the grave"))).await, Reported::LeaseLost);
    let again = bench.claim(&remote, 9).await;
    assert_eq!((again.len(), again[0].epoch, again[0].tries), (1, 2, 1));
}

async fn a_sole_server_lease_ends_all_earlier_ones(bench: Bench) {
    let server = bench.server().await;
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let embedded = bench.embedded_worker(&server).await;
    bench.claim(&embedded, 1).await;
    let next = bench.sole_server().await;
    assert_eq!(bench.store.reap_servers(bench.now()).await.unwrap(), 1);
    let living: Vec<_> = bench.store.list_servers().await.unwrap().into_iter().map(|server| server.id).collect();
    assert_eq!(living, [next]);
    assert_eq!(bench.step(&run, "a").await.status, StepStatus::Scheduled);
}

async fn a_heartbeat_returns_where_work_is_due(bench: Bench) {
    let (server, other) = (bench.server().await, bench.server().await);
    let look =
        async |server: &ServerId| bench.store.pulse(server, bench.now(), bench.now().plus_ms(LIFE_MS)).await.unwrap();
    let nothing = look(&server).await;
    assert_eq!((nothing.alive, nothing.runs_to_drive, nothing.ready, nothing.expired), (true, false, false, false));
    assert_eq!(nothing.next_timer, None);

    let run = bench.run().await;
    assert!(look(&server).await.runs_to_drive, "without an owner");
    acquire(&bench, &server, &run).await;
    assert!(look(&server).await.runs_to_drive && !look(&other).await.runs_to_drive);
    bench.schedule(&run, &["a", "b"]).await;
    let pulse = look(&other).await;
    assert!(pulse.ready && !pulse.runs_to_drive);
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    assert!(!look(&server).await.ready);
    let soon = bench.now().plus_ms(500);
    let end = nightshift_engine::store::TryEnd::Retry { failure: crate::bench::lost(), at: soon };
    bench.report(&steps[0], end).await;
    assert_eq!(look(&server).await.next_timer, Some(soon));
    bench.clock.forward(15_000);
    let pulse = look(&server).await;
    assert!(pulse.expired, "a lease ran out, and a server died");
    assert!(pulse.alive);
}

async fn a_deleted_server_learns_it_from_its_heartbeat(bench: Bench) {
    let server = bench.server().await;
    bench.clock.forward(10_000);
    bench.store.reap_servers(bench.now()).await.unwrap();
    let pulse = bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LIFE_MS)).await.unwrap();
    assert!(!pulse.alive);
    assert!(bench.store.list_servers().await.unwrap().is_empty());
}

async fn only_a_database_that_machines_share_has_a_clock(bench: Bench) {
    let server = bench.server().await;
    let first = bench.store.database_now().await.unwrap();
    let pulse = bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LIFE_MS)).await.unwrap();
    let second = bench.store.database_now().await.unwrap();
    assert_eq!(first.is_some(), bench.kind() == Kind::Postgres);
    assert_eq!(pulse.database_now.is_some(), first.is_some());
    assert!(first <= pulse.database_now && pulse.database_now <= second);
    assert!(first.is_none_or(|at| at > bench.now()), "the clock of a test stands in 1970");
}

/// Registers a server of a release with this state format.
async fn server_of_format(bench: &Bench, state_format: u32) -> ServerId {
    let id = ServerId::from_uuid(bench.uuid());
    let record = ServerRecord { state_format, ..server_record(id.clone(), bench.now()) };
    bench.store.register_server(record, false).await.unwrap();
    id
}

async fn a_server_leaves_runs_of_a_newer_release_alone(bench: Bench) {
    let newer = server_of_format(&bench, 2).await;
    let run = bench.run().await;
    assert_eq!(acquire(&bench, &newer, &run).await, Ownership::Mine(fence(&newer, 1)));
    bench.store.retire_server(&newer, bench.now()).await.unwrap();
    let older = server_of_format(&bench, 1).await;
    assert_eq!(acquire(&bench, &older, &run).await, Ownership::TooNew { state_format: 2 });
    assert!(bench.store.acquire_runs(&older, 9, bench.now()).await.unwrap().is_empty());
    let pulse = bench.store.pulse(&older, bench.now(), bench.now().plus_ms(LIFE_MS)).await.unwrap();
    assert!(pulse.alive && !pulse.runs_to_drive, "it is not told to look for what it may not have");
    assert_eq!(bench.store.count_newer_runs(1).await.unwrap(), 1);
    assert_eq!(bench.store.count_newer_runs(2).await.unwrap(), 0);
    // A server of the newer release continues it.
    let next = server_of_format(&bench, 2).await;
    assert_eq!(acquire(&bench, &next, &run).await, Ownership::Mine(fence(&next, 2)));
    bench.assert_sound().await;
}

async fn a_newer_release_takes_runs_of_an_older_one_and_keeps_them(bench: Bench) {
    let older = server_of_format(&bench, 1).await;
    let run = bench.run().await;
    let created = NewCampaign { owner: Some(older.clone()), ..bench.new_campaign(1) };
    let created = bench.store.create_campaign(created).await.unwrap().runs.remove(0);
    acquire(&bench, &older, &run).await;
    bench.store.retire_server(&older, bench.now()).await.unwrap();
    let newer = server_of_format(&bench, 3).await;
    let taken = bench.store.acquire_runs(&newer, 9, bench.now()).await.unwrap();
    assert_eq!(taken.iter().map(|(run, _)| run).collect::<Vec<_>>(), [&run, &created]);
    let own = NewCampaign { owner: Some(newer.clone()), ..bench.new_campaign(1) };
    let own = bench.store.create_campaign(own).await.unwrap().runs.remove(0);
    bench.store.retire_server(&newer, bench.now()).await.unwrap();
    let older = server_of_format(&bench, 2).await;
    for run in [&run, &created, &own] {
        assert_eq!(acquire(&bench, &older, run).await, Ownership::TooNew { state_format: 3 });
    }
    bench.assert_sound().await;
}

async fn an_archive_carries_the_format_of_states(bench: Bench) {
    let newer = server_of_format(&bench, 2).await;
    let new = NewCampaign { owner: Some(newer), ..bench.new_campaign(1) };
    let created = bench.store.create_campaign(new).await.unwrap();
    let archive = bench.store.export_campaign(&created.id).await.unwrap();
    assert!(archive.rows.iter().any(|row| row["table"] == "run_format" && row["state_format"] == 2));
    let other = Bench::on(bench.kind()).await;
    other.store.import_campaign(archive, other.now()).await.unwrap();
    let older = server_of_format(&other, 1).await;
    assert_eq!(acquire(&other, &older, &created.runs[0]).await, Ownership::TooNew { state_format: 2 });
}
