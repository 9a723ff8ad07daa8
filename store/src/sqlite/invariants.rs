//! What must hold after every transaction, as queries that find the opposite.

use sqlx::SqliteConnection;

use super::failure::Failure;

/// Findings of one rule that are told.
const MAX_FINDINGS_PER_RULE: u32 = 20;

/// A rule, and a query for the ids of what breaks it.
const RULES: &[(&str, &str)] = &[
    (
        "the log of a run has no gaps and ends where the run says",
        "SELECT r.public_id FROM run r WHERE r.last_seq <> (SELECT COUNT(*) FROM event WHERE run_id = r.id) \
            OR r.last_seq <> (SELECT coalesce(MAX(seq), 0) FROM event WHERE run_id = r.id) \
            OR 1 <> (SELECT coalesce(MIN(seq), 1) FROM event WHERE run_id = r.id) LIMIT ?1",
    ),
    (
        "a log begins with the creation of its run, and nothing else creates it",
        "SELECT r.public_id FROM run r WHERE 1 <> (SELECT COUNT(*) FROM event WHERE run_id = r.id \
            AND kind = 'run_created') OR NOT EXISTS (SELECT 1 FROM event WHERE run_id = r.id AND seq = 1 \
            AND kind = 'run_created') LIMIT ?1",
    ),
    (
        "a run knows its last event that asks for a decision, and folds no event that does not exist",
        "SELECT r.public_id FROM run r WHERE r.folded_seq > r.last_seq OR r.wake_seq <> \
            (SELECT coalesce(MAX(seq), 0) FROM event WHERE run_id = r.id AND kind NOT IN ('step_scheduled', 'step_retried')) LIMIT ?1",
    ),
    (
        "a run has a state as soon as an event is folded",
        "SELECT r.public_id FROM run r WHERE (r.folded_seq > 0) <> \
            EXISTS (SELECT 1 FROM run_state WHERE run_id = r.id) LIMIT ?1",
    ),
    (
        "a run that is over says so last, has no open steps and knows when it ended",
        "SELECT r.public_id FROM run r WHERE r.status IN ('completed', 'failed', 'cancelled') AND ( \
            r.finished_at_ms IS NULL \
            OR EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status IN ('scheduled', 'leased')) \
            OR 'run_' || r.status <> (SELECT kind FROM event WHERE run_id = r.id AND seq = r.last_seq)) LIMIT ?1",
    ),
    (
        "a run that is being cancelled has no scheduled steps",
        "SELECT r.public_id FROM run r WHERE r.status = 'cancelling' \
            AND EXISTS (SELECT 1 FROM step WHERE run_id = r.id AND status = 'scheduled') LIMIT ?1",
    ),
    (
        "a step is in at most one of ready, lease and timer",
        "SELECT public_id FROM step WHERE id IN (SELECT step_id FROM (SELECT step_id FROM ready UNION ALL \
            SELECT step_id FROM lease UNION ALL SELECT step_id FROM timer) GROUP BY step_id HAVING COUNT(*) > 1) LIMIT ?1",
    ),
    (
        "a lease exists exactly while its step is leased, with the step's epoch and worker",
        "SELECT s.public_id FROM step s LEFT JOIN lease l ON l.step_id = s.id \
          WHERE (s.status = 'leased') <> (l.step_id IS NOT NULL) \
             OR l.epoch <> s.epoch OR l.worker_id <> s.worker_id LIMIT ?1",
    ),
    (
        "a ready step is scheduled, in its route, in a running run",
        "SELECT s.public_id FROM ready q JOIN step s ON s.id = q.step_id JOIN run r ON r.id = s.run_id \
          WHERE s.status <> 'scheduled' OR r.status <> 'running' OR q.route_id <> s.route_id LIMIT ?1",
    ),
    (
        "a timer belongs to a scheduled step",
        "SELECT s.public_id FROM timer t JOIN step s ON s.id = t.step_id WHERE s.status <> 'scheduled' LIMIT ?1",
    ),
    (
        "a scheduled step of a running run is ready or waits for a timer",
        "SELECT s.public_id FROM step s JOIN run r ON r.id = s.run_id \
          WHERE s.status = 'scheduled' AND r.status = 'running' AND s.id NOT IN (SELECT step_id FROM ready) \
            AND s.id NOT IN (SELECT step_id FROM timer) LIMIT ?1",
    ),
    (
        "a step was begun at most as often as it was leased",
        "SELECT public_id FROM step WHERE tries > epoch OR tries < 0 OR coalesce(reported_epoch, 0) > epoch LIMIT ?1",
    ),
    (
        "a step is scheduled once in its log, and its result is committed at most once",
        "SELECT s.public_id FROM step s \
          WHERE 1 <> (SELECT COUNT(*) FROM event WHERE run_id = s.run_id AND kind = 'step_scheduled' \
                       AND body ->> '$.key' = s.key) \
             OR (s.status = 'completed') <> (SELECT COUNT(*) FROM event WHERE run_id = s.run_id \
                       AND kind = 'step_completed' AND body ->> '$.key' = s.key) LIMIT ?1",
    ),
    (
        "a completed step names the event that holds its output",
        "SELECT s.public_id FROM step s LEFT JOIN event e ON e.run_id = s.run_id AND e.seq = s.output_seq \
          WHERE (s.status = 'completed') <> (e.seq IS NOT NULL) OR e.kind <> 'step_completed' \
             OR e.body ->> '$.key' <> s.key LIMIT ?1",
    ),
    (
        "a failed step has its failure in the log",
        "SELECT s.public_id FROM step s WHERE s.status = 'failed' AND (s.failure IS NULL OR NOT EXISTS \
            (SELECT 1 FROM event WHERE run_id = s.run_id AND kind = 'step_failed' AND body ->> '$.key' = s.key)) \
          LIMIT ?1",
    ),
    (
        "a cancelled step has its end in the log",
        "SELECT s.public_id FROM step s WHERE s.status = 'cancelled' AND NOT EXISTS (SELECT 1 FROM event \
            WHERE run_id = s.run_id AND kind = 'step_cancelled' AND body ->> '$.key' = s.key) LIMIT ?1",
    ),
    (
        "a step is over exactly when it knows the moment",
        "SELECT public_id FROM step WHERE (status IN ('completed', 'failed', 'cancelled')) <> \
            (finished_at_ms IS NOT NULL) LIMIT ?1",
    ),
    ("a step has its input", "SELECT public_id FROM step WHERE id NOT IN (SELECT step_id FROM step_input) LIMIT ?1"),
    ("references lead somewhere", "SELECT \"table\" FROM pragma_foreign_key_check LIMIT ?1"),
];

/// One sentence per finding; none when all is well.
pub(super) async fn violations(connection: &mut SqliteConnection) -> Result<Vec<String>, Failure> {
    let mut violations = Vec::new();
    for (rule, query) in RULES {
        let ids: Vec<String> =
            sqlx::query_scalar(*query).bind(MAX_FINDINGS_PER_RULE).fetch_all(&mut *connection).await?;
        violations.extend(ids.into_iter().map(|id| format!("{id} breaks the rule: {rule}")));
    }
    Ok(violations)
}
