//! Tests that the search for contradictions finds them.

use nightshift_engine::store::{ArtifactStore, ChangeStore, ClaimRequest, DeviceLane, TryEnd};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::task::Target;

use crate::bench::{Bench, amount, done, lost, order};
use crate::place::Kind;
use crate::raw::Raw;

crate::bench::on_both!(every_damage_is_found_and_named);

/// Statements that damage the data, with a part of the expected finding.
const DAMAGES: &[(&str, &str)] = &[
    ("DELETE FROM event WHERE seq = 2", "has no gaps"),
    ("UPDATE event SET kind = 'run_paused' WHERE seq = 1", "begins with the creation"),
    ("UPDATE run SET wake_seq = 1", "last event that asks"),
    ("UPDATE run SET folded_seq = last_seq + 1", "folds no event that does not exist"),
    ("DELETE FROM run_state", "has a state"),
    ("UPDATE run SET status = 'completed'", "a run that is over"),
    ("UPDATE run SET finished_at_ms = 1", "knows no end"),
    ("UPDATE run SET status = 'cancelling'", "being cancelled"),
    ("UPDATE run SET owner_id = 1", "belongs to a server under an epoch"),
    ("INSERT INTO timer (step_id, not_before_ms) SELECT step_id, 1 FROM lease", "at most one of"),
    ("DELETE FROM lease", "a lease exists exactly"),
    ("UPDATE lease SET epoch = epoch + 1", "a lease exists exactly"),
    ("UPDATE step SET worker = 'wrk_another' WHERE status = 'leased'", "a lease exists exactly"),
    ("UPDATE lease SET device = NULL WHERE exclusive = 1", "alone knows which"),
    ("UPDATE lease SET device = 0 WHERE device IS NULL", "there is no other one"),
    ("UPDATE run SET status = 'paused'", "a ready step is scheduled"),
    ("UPDATE ready SET campaign_id = campaign_id + 1", "a ready step is scheduled, in its route and campaign"),
    ("UPDATE step SET status = 'cancelled' WHERE key = 'later'", "a timer belongs"),
    ("UPDATE step SET status = 'cancelled' WHERE key = 'dear'", "a blocked step is scheduled"),
    ("DELETE FROM ready", "is ready, or waits"),
    ("DELETE FROM timer", "is ready, or waits"),
    ("DELETE FROM blocked", "is ready, or waits"),
    ("UPDATE reservation SET step_id = (SELECT id FROM step WHERE key = 'later')", "have something set aside"),
    ("DELETE FROM reservation", "what a budget says is reserved"),
    ("UPDATE budget SET reserved = reserved + 1 WHERE resource = 'tokens'", "what a budget says is reserved"),
    ("UPDATE reservation SET campaign_id = campaign_id + 1", "counted in a budget of the step's campaign"),
    ("DELETE FROM campaign_clock", "a campaign has a clock"),
    ("UPDATE step SET tries = epoch + 1", "as often as it was leased"),
    ("UPDATE step SET scheduled_seq = 1 WHERE key = 'done'", "scheduled once in its log, where it says"),
    ("UPDATE step SET status = 'scheduled' WHERE key = 'done'", "committed at most once"),
    ("UPDATE step SET output_seq = 1 WHERE key = 'done'", "names the event"),
    ("UPDATE step SET status = 'failed' WHERE key = 'done'", "failed step has its failure"),
    ("UPDATE step SET status = 'cancelled' WHERE key = 'done'", "cancelled step has its end"),
    ("UPDATE step SET finished_at_ms = NULL WHERE key = 'done'", "knows the moment"),
    ("DELETE FROM step_input", "has its input"),
    ("UPDATE artifact SET stored_bytes = 1", "has all its bytes"),
    ("DELETE FROM artifact_chunk", "has all its bytes"),
];

/// References that the schema does not check, as table and column.
const UNCHECKED: [(&str, &str); 16] = [
    ("run_state", "run_id"),
    ("run_part", "run_id"),
    ("event", "run_id"),
    ("step", "run_id"),
    ("step", "route_id"),
    ("step_input", "step_id"),
    ("ready", "route_id"),
    ("ready", "step_id"),
    ("ready", "campaign_id"),
    ("lease", "step_id"),
    ("lease", "worker_id"),
    ("timer", "step_id"),
    ("blocked", "step_id"),
    ("blocked", "campaign_id"),
    ("reservation", "step_id"),
    ("reservation", "campaign_id"),
];

/// Postgres prevents this damage.
const DAMAGED_REFERENCE: (&str, &str) = ("UPDATE campaign_clock SET campaign_id = 9999", "references lead somewhere");

/// Creates a step in each place.
async fn fill(bench: &Bench) {
    let budget = BudgetCaps { tokens: Some(10), ..BudgetCaps::default() };
    let (_, run) = bench.run_with_budget(budget).await;
    let priced = |key: &str| StepOrder { reserve: vec![amount(Resource::Tokens, 8)], ..order(key) };
    let timed = StepOrder { needs: Needs::worker(Target::Cpu, DeviceUse::Exclusive), ..order("alone") };
    let orders = vec![order("done"), order("later"), priced("held"), order("ready"), timed.clone(), priced("dear")];
    bench.schedule_orders(&run, orders).await;
    let worker = bench.worker().await;
    let lane = DeviceLane { device: 0, exclusive: vec![timed.needs.route()], shared: Vec::new(), shared_slots: 0 };
    let claim = ClaimRequest { devices: vec![lane], ..bench.claim_request(&worker, 3) };
    let steps = bench.store.claim(claim).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["done", "later", "held", "alone"]);
    bench.report(&steps[0], done(serde_json::json!(1))).await;
    bench.report(&steps[1], TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(9) }).await;
    let bytes = b"an artifact";
    bench.store.put_artifact(&ArtifactHash::of(bytes), bytes, bench.now()).await.unwrap();
}

async fn every_damage_is_found_and_named(bench: Bench) {
    let references = (bench.kind() == Kind::Sqlite).then_some(&DAMAGED_REFERENCE);
    fill(&bench).await;
    let mut raw = Raw::connect(&bench.place).await;
    let mut repairs = Vec::new();
    for table in raw.tables().await {
        raw.execute(&format!("CREATE TABLE copy_of_{table} AS SELECT * FROM {table}")).await;
        let columns: Vec<String> = raw.columns(&table).await.into_iter().map(|(name, _)| name).collect();
        let columns = columns.join(", ");
        repairs.push(format!("DELETE FROM {table}"));
        repairs.push(format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM copy_of_{table}"));
    }
    let repair = repairs.join("; ");
    let unchecked = UNCHECKED.map(|(table, column)| {
        // Moves one row of each owner to an owner that does not exist.
        let damage = format!("UPDATE {table} SET {column} = 9999 WHERE {column} = (SELECT MIN({column}) FROM {table})");
        (damage, format!("{table}.{column} 9999 breaks the rule: references lead somewhere"))
    });
    let damages = DAMAGES.iter().chain(references).map(|(damage, named)| ((*damage).to_owned(), (*named).to_owned()));
    for (damage, named) in damages.chain(unchecked) {
        let (damage, named) = (damage.as_str(), named.as_str());
        raw.execute(damage).await;
        let violations = bench.store.find_violations().await.unwrap();
        assert!(violations.iter().any(|sentence| sentence.contains(named)), "{damage}\n{violations:#?}");
        raw.execute(&format!("BEGIN; {repair}; COMMIT")).await;
        bench.assert_sound().await;
    }
}
