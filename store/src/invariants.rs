//! Invariants after every transaction, as queries that find violations.

use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::value::values;

/// Maximum number of findings per rule.
const MAX_FINDINGS_PER_RULE: i64 = 20;

/// A query for the ids of violations. `{body}` stands for the body of an event as JSON.
macro_rules! query {
    ($($part:tt)*) => {
        Sql { sqlite: parts!("body"; $($part)*), postgres: parts!("body::json"; $($part)*) }
    };
}

/// The parts of a query. `key` stands for the step of an event.
macro_rules! parts {
    ($body:literal; $($part:tt)*) => { concat!($(part!($body; $part)),*) };
}

macro_rules! part {
    ($body:literal; key) => {
        concat!("(", $body, " ->> 'key')")
    };
    ($body:literal; $text:literal) => {
        $text
    };
}

/// Rules, each with a query for the ids of violations.
const RULES: &[(&str, Sql)] = &[
    (
        "the log of a run has no gaps and ends where the run says",
        query!(
            "SELECT r.public_id FROM run r WHERE r.last_seq <> (SELECT COUNT(*) FROM event WHERE run_id = r.id) \
            OR r.last_seq <> (SELECT coalesce(MAX(seq), 0) FROM event WHERE run_id = r.id) \
            OR 1 <> (SELECT coalesce(MIN(seq), 1) FROM event WHERE run_id = r.id) LIMIT $1"
        ),
    ),
    (
        "a log begins with the creation of its run, and nothing else creates it",
        query!(
            "SELECT r.public_id FROM run r WHERE 1 <> (SELECT COUNT(*) FROM event WHERE run_id = r.id \
            AND kind = 'run_created') OR NOT EXISTS (SELECT 1 FROM event WHERE run_id = r.id AND seq = 1 \
            AND kind = 'run_created') LIMIT $1"
        ),
    ),
    (
        "a run knows its last event that asks for a decision, and folds no event that does not exist",
        query!(
            "SELECT r.public_id FROM run r WHERE r.folded_seq > r.last_seq OR r.wake_seq <> \
            (SELECT coalesce(MAX(seq), 0) FROM event WHERE run_id = r.id \
              AND kind NOT IN ('step_scheduled', 'step_retried')) LIMIT $1"
        ),
    ),
    (
        "a run has a state as soon as an event is folded",
        query!(
            "SELECT r.public_id FROM run r WHERE (r.folded_seq > 0) <> \
            EXISTS (SELECT 1 FROM run_state WHERE run_id = r.id) LIMIT $1"
        ),
    ),
    (
        "a run that is over says so last, has no open steps and knows when it ended",
        query!(
            "SELECT r.public_id FROM run r WHERE r.status IN ('completed', 'failed', 'cancelled') AND ( \
            r.finished_at_ms IS NULL OR r.awaits IS NOT NULL \
            OR EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status IN ('scheduled', 'leased')) \
            OR 'run_' || r.status <> (SELECT kind FROM event WHERE run_id = r.id AND seq = r.last_seq)) LIMIT $1"
        ),
    ),
    (
        "a run that is not over knows no end",
        query!(
            "SELECT public_id FROM run WHERE status IN ('running', 'paused', 'cancelling') \
            AND finished_at_ms IS NOT NULL LIMIT $1"
        ),
    ),
    (
        "a run that is being cancelled has no scheduled steps",
        query!(
            "SELECT r.public_id FROM run r WHERE r.status = 'cancelling' \
            AND EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status = 'scheduled') LIMIT $1"
        ),
    ),
    (
        "a run belongs to a server under an epoch that counts",
        query!(
            "SELECT public_id FROM run WHERE owner_epoch < 0 OR (owner_id IS NOT NULL AND owner_epoch < 1) LIMIT $1"
        ),
    ),
    (
        "a step is in at most one of ready, lease, timer and blocked",
        query!(
            "SELECT public_id FROM step WHERE id IN (SELECT step_id FROM (SELECT step_id FROM ready UNION ALL \
            SELECT step_id FROM lease UNION ALL SELECT step_id FROM timer UNION ALL SELECT step_id FROM blocked) AS placed \
            GROUP BY step_id HAVING COUNT(*) > 1) LIMIT $1"
        ),
    ),
    (
        "a lease exists exactly while its step is leased, with the step's epoch and worker",
        query!(
            "SELECT s.public_id FROM step s LEFT JOIN lease l ON l.step_id = s.id \
            LEFT JOIN worker w ON w.id = l.worker_id \
          WHERE (s.status = 'leased') <> (l.step_id IS NOT NULL) \
             OR l.epoch <> s.epoch OR w.public_id <> s.worker LIMIT $1"
        ),
    ),
    (
        "a step that has a device alone knows which",
        query!(
            "SELECT s.public_id FROM lease l JOIN step s ON s.id = l.step_id \
          WHERE l.exclusive = 1 AND l.device IS NULL LIMIT $1"
        ),
    ),
    (
        "beside a step that has a device alone there is no other one",
        query!(
            "SELECT s.public_id FROM lease l JOIN step s ON s.id = l.step_id \
          WHERE l.exclusive = 1 AND EXISTS (SELECT 1 FROM lease o WHERE o.worker_id = l.worker_id \
            AND o.device = l.device AND o.step_id <> l.step_id) LIMIT $1"
        ),
    ),
    (
        "a ready step is scheduled, in its route and campaign, in a running run",
        query!(
            "SELECT s.public_id FROM ready q JOIN step s ON s.id = q.step_id JOIN run r ON r.id = s.run_id \
          WHERE s.status <> 'scheduled' OR r.status <> 'running' OR q.route_id <> s.route_id \
             OR q.campaign_id <> r.campaign_id LIMIT $1"
        ),
    ),
    (
        "a timer belongs to a scheduled step",
        query!(
            "SELECT s.public_id FROM timer t JOIN step s ON s.id = t.step_id WHERE s.status <> 'scheduled' LIMIT $1"
        ),
    ),
    (
        "a blocked step is scheduled, in its campaign",
        query!(
            "SELECT s.public_id FROM blocked b JOIN step s ON s.id = b.step_id JOIN run r ON r.id = s.run_id \
          WHERE s.status <> 'scheduled' OR b.campaign_id <> r.campaign_id LIMIT $1"
        ),
    ),
    (
        "a scheduled step of a running run is ready, or waits for a timer or a budget",
        query!(
            "SELECT s.public_id FROM step s JOIN run r ON r.id = s.run_id \
          WHERE s.status = 'scheduled' AND r.status = 'running' AND NOT EXISTS \
            (SELECT 1 FROM ready WHERE step_id = s.id) AND NOT EXISTS (SELECT 1 FROM timer WHERE step_id = s.id) \
            AND NOT EXISTS (SELECT 1 FROM blocked WHERE step_id = s.id) LIMIT $1"
        ),
    ),
    (
        "only steps that are ready or leased have something set aside",
        query!(
            "SELECT s.public_id FROM reservation v JOIN step s ON s.id = v.step_id \
          WHERE v.amount < 0 OR (NOT EXISTS (SELECT 1 FROM ready WHERE step_id = s.id) \
            AND NOT EXISTS (SELECT 1 FROM lease WHERE step_id = s.id)) LIMIT $1"
        ),
    ),
    (
        "what a budget says is reserved is what is set aside for the campaign's steps",
        query!(
            "SELECT c.public_id FROM budget b JOIN campaign c ON c.id = b.campaign_id \
          WHERE b.reserved <> (SELECT coalesce(SUM(amount), 0) FROM reservation v \
            WHERE v.campaign_id = b.campaign_id AND v.resource = b.resource) OR b.used < 0 OR b.reserved < 0 LIMIT $1"
        ),
    ),
    (
        "what is set aside is counted in a budget of the step's campaign",
        query!(
            "SELECT s.public_id FROM reservation v JOIN step s ON s.id = v.step_id JOIN run r ON r.id = s.run_id \
          WHERE v.campaign_id <> r.campaign_id OR NOT EXISTS (SELECT 1 FROM budget b \
            WHERE b.campaign_id = v.campaign_id AND b.resource = v.resource) LIMIT $1"
        ),
    ),
    (
        "a campaign has a clock",
        query!("SELECT public_id FROM campaign WHERE id NOT IN (SELECT campaign_id FROM campaign_clock) LIMIT $1"),
    ),
    (
        "a step was begun at most as often as it was leased",
        query!(
            "SELECT public_id FROM step WHERE tries > epoch OR tries < 0 \
            OR coalesce(reported_epoch, 0) > epoch LIMIT $1"
        ),
    ),
    (
        "a step is scheduled once in its log, where it says, and its result is committed at most once",
        query!("SELECT s.public_id FROM step s \
          WHERE 1 <> (SELECT COUNT(*) FROM event WHERE run_id = s.run_id AND kind = 'step_scheduled' AND " key " = s.key) \
             OR NOT EXISTS (SELECT 1 FROM event WHERE run_id = s.run_id AND seq = s.scheduled_seq \
                       AND kind = 'step_scheduled' AND " key " = s.key) \
             OR CASE WHEN s.status = 'completed' THEN 1 ELSE 0 END <> (SELECT COUNT(*) FROM event WHERE run_id = s.run_id \
                       AND kind = 'step_completed' AND " key " = s.key) LIMIT $1"),
    ),
    (
        "a completed step names the event that holds its output",
        query!("SELECT s.public_id FROM step s LEFT JOIN event e ON e.run_id = s.run_id AND e.seq = s.output_seq \
          WHERE (s.status = 'completed') <> (e.seq IS NOT NULL) OR e.kind <> 'step_completed' \
             OR " key " <> s.key LIMIT $1"),
    ),
    (
        "a failed step has its failure in the log",
        query!("SELECT s.public_id FROM step s WHERE s.status = 'failed' AND (s.failure IS NULL OR NOT EXISTS \
            (SELECT 1 FROM event WHERE run_id = s.run_id AND kind = 'step_failed' AND " key " = s.key)) LIMIT $1"),
    ),
    (
        "a cancelled step has its end in the log",
        query!("SELECT s.public_id FROM step s WHERE s.status = 'cancelled' AND NOT EXISTS (SELECT 1 FROM event \
            WHERE run_id = s.run_id AND kind = 'step_cancelled' AND " key " = s.key) LIMIT $1"),
    ),
    (
        "a step is over exactly when it knows the moment",
        query!(
            "SELECT public_id FROM step WHERE (status IN ('completed', 'failed', 'cancelled')) <> \
            (finished_at_ms IS NOT NULL) LIMIT $1"
        ),
    ),
    (
        "a step has its input",
        query!(
            "SELECT public_id FROM step WHERE NOT EXISTS (SELECT 1 FROM step_input WHERE step_id = step.id) LIMIT $1"
        ),
    ),
    (
        "a complete artifact has all its bytes",
        query!(
            "SELECT a.hash FROM artifact a WHERE (a.complete = 1) <> (a.stored_bytes = a.size_bytes) \
            OR a.stored_bytes <> (SELECT coalesce(SUM(length(bytes)), 0) FROM artifact_chunk WHERE artifact_id = a.id) \
               + (SELECT coalesce(SUM(size_bytes), 0) FROM artifact_object WHERE artifact_id = a.id) LIMIT $1"
        ),
    ),
    (
        "an object is stored exactly when an artifact has it",
        query!("SELECT hash FROM artifact_object WHERE (state = 'stored') <> (artifact_id IS NOT NULL) LIMIT $1"),
    ),
];

/// References of the hot tables: table, column, and target. The schema does not check them.
macro_rules! references {
    ($($table:literal . $column:literal -> $to:literal),* $(,)?) => {
        &[$((
            concat!($table, ".", $column),
            concat!(
                "SELECT CAST(", $column, " AS TEXT) FROM ", $table, " AS d \
                 WHERE NOT EXISTS (SELECT 1 FROM ", $to, " WHERE ", $to, ".id = d.", $column, ") LIMIT $1"
            ),
        )),*]
    };
}
const UNCHECKED: &[(&str, &str)] = references! {
    "run_state"."run_id" -> "run",
    "run_part"."run_id" -> "run",
    "event"."run_id" -> "run",
    "step"."run_id" -> "run",
    "step"."route_id" -> "route",
    "step_input"."step_id" -> "step",
    "ready"."route_id" -> "route",
    "ready"."step_id" -> "step",
    "ready"."campaign_id" -> "campaign",
    "lease"."step_id" -> "step",
    "lease"."worker_id" -> "worker",
    "timer"."step_id" -> "step",
    "blocked"."step_id" -> "step",
    "blocked"."campaign_id" -> "campaign",
    "reservation"."step_id" -> "step",
    "reservation"."campaign_id" -> "campaign",
};

/// References of the other tables. Postgres checks these itself.
const REFERENCES: &str = "SELECT \"table\" FROM pragma_foreign_key_check LIMIT $1";

/// Returns one sentence per finding.
pub(crate) async fn violations(connection: &mut Connection) -> Result<Vec<String>, Failure> {
    let mut violations = Vec::new();
    for (rule, query) in RULES {
        for row in connection.fetch_all(*query, values![MAX_FINDINGS_PER_RULE]).await? {
            violations.push(format!("{} breaks the rule: {rule}", row.str(0)?));
        }
    }
    for (reference, query) in UNCHECKED {
        for row in connection.fetch_all(*query, values![MAX_FINDINGS_PER_RULE]).await? {
            violations.push(format!("{reference} {} breaks the rule: references lead somewhere", row.str(0)?));
        }
    }
    if connection.backend() == crate::connection::Backend::Sqlite {
        for row in connection.fetch_all(REFERENCES, values![MAX_FINDINGS_PER_RULE]).await? {
            violations.push(format!("{} breaks the rule: references lead somewhere", row.str(0)?));
        }
    }
    Ok(violations)
}
