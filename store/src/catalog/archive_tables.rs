//! The tables of an archive, with the statements that read and store their rows.

use crate::connection::Sql;
use crate::sql::from_rows;

/// Type of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A number.
    Number,
    /// A number or null.
    OptNumber,
    /// A text.
    Text,
    /// A text or null.
    OptText,
}

/// A table. Columns are archived in this order under these names.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    /// Selects the rows of the campaign with the internal key `$1`.
    pub(crate) export: &'static str,
    /// Stores rows: `d.value ->> n` is the column `n`.
    pub(crate) import: Sql,
    /// Whether an id for the step follows the columns.
    pub(crate) has_step_ids: bool,
    /// When its rows are compared with stored ones.
    pub(crate) compared: Compared,
}

/// When rows are compared with stored ones, to decide whether two campaigns are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Always.
    Always,
    /// If the archive has such rows. Archives of older releases have none.
    IfArchived,
    /// Never: the rows are derived from others.
    Never,
}

/// Selects a number of an archived row.
macro_rules! number {
    ($column:literal) => {
        concat!("CAST(d.value ->> ", $column, " AS BIGINT)")
    };
}

/// The tables in an order in which they can be stored.
pub(crate) const TABLES: &[Table] = &[
    Table {
        name: "campaign",
        columns: &[
            ("public_id", Kind::Text),
            ("name", Kind::Text),
            ("spec", Kind::Text),
            ("created_at_ms", Kind::Number),
            ("schedule", Kind::OptText),
            ("priority", Kind::Number),
            ("weight", Kind::Number),
        ],
        export: "SELECT public_id, name, spec, created_at_ms, schedule, priority, weight FROM campaign WHERE id = $1",
        import: from_rows!(
            concat!(
                "INSERT INTO campaign (public_id, name, spec, created_at_ms, schedule, priority, weight) ",
                "SELECT d.value ->> 0, d.value ->> 1, d.value ->> 2, ",
                number!(3),
                ", d.value ->> 4, ",
                number!(5),
                ", ",
                number!(6),
                " FROM "
            ),
            ""
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "budget",
        columns: &[
            ("campaign", Kind::Text),
            ("resource", Kind::Text),
            ("cap", Kind::OptNumber),
            ("used", Kind::Number),
        ],
        export: "SELECT c.public_id AS campaign, b.resource, b.cap, b.used FROM budget b \
                 JOIN campaign c ON c.id = b.campaign_id WHERE b.campaign_id = $1 ORDER BY b.resource",
        import: from_rows!(
            concat!(
                "INSERT INTO budget (campaign_id, resource, cap, used) SELECT c.id, d.value ->> 1, ",
                number!(2),
                ", ",
                number!(3),
                " FROM "
            ),
            " JOIN campaign c ON c.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "run",
        columns: &[
            ("public_id", Kind::Text),
            ("campaign", Kind::Text),
            ("status", Kind::Text),
            ("priority", Kind::Number),
            ("revision", Kind::Number),
            ("last_seq", Kind::Number),
            ("wake_seq", Kind::Number),
            ("folded_seq", Kind::Number),
            ("digest", Kind::Text),
            ("awaits", Kind::OptText),
            ("failure", Kind::OptText),
            ("created_at_ms", Kind::Number),
            ("finished_at_ms", Kind::OptNumber),
        ],
        export: "SELECT r.public_id, c.public_id AS campaign, r.status, r.priority, r.revision, r.last_seq, \
                 r.wake_seq, r.folded_seq, r.digest, r.awaits, r.failure, r.created_at_ms, r.finished_at_ms \
                 FROM run r JOIN campaign c ON c.id = r.campaign_id WHERE r.campaign_id = $1 ORDER BY r.id",
        import: from_rows!(
            concat!(
                "INSERT INTO run (public_id, campaign_id, status, priority, revision, last_seq, wake_seq, folded_seq, ",
                "digest, awaits, failure, created_at_ms, finished_at_ms) ",
                "SELECT d.value ->> 0, c.id, d.value ->> 2, ",
                number!(3),
                ", ",
                number!(4),
                ", ",
                number!(5),
                ", ",
                number!(6),
                ", ",
                number!(7),
                ", d.value ->> 8, d.value ->> 9, d.value ->> 10, ",
                number!(11),
                ", ",
                number!(12),
                " FROM "
            ),
            " JOIN campaign c ON c.public_id = d.value ->> 1 ORDER BY d.key"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "run_state",
        columns: &[("run", Kind::Text), ("state", Kind::Text)],
        export: "SELECT r.public_id AS run, s.state FROM run_state s JOIN run r ON r.id = s.run_id \
                 WHERE r.campaign_id = $1 ORDER BY r.id",
        import: from_rows!(
            "INSERT INTO run_state (run_id, state) SELECT r.id, d.value ->> 1 FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "run_part",
        columns: &[("run", Kind::Text), ("field", Kind::Text), ("number", Kind::Number), ("value", Kind::Text)],
        export: "SELECT r.public_id AS run, p.field, p.number, p.value FROM run_part p JOIN run r ON r.id = p.run_id \
                 WHERE r.campaign_id = $1 ORDER BY r.id, p.field, p.number",
        import: from_rows!(
            concat!(
                "INSERT INTO run_part (run_id, field, number, value, revision) SELECT r.id, d.value ->> 1, ",
                number!(2),
                ", d.value ->> 3, r.revision FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "event",
        columns: &[
            ("run", Kind::Text),
            ("seq", Kind::Number),
            ("at_ms", Kind::Number),
            ("kind", Kind::Text),
            ("body", Kind::Text),
        ],
        export: "SELECT r.public_id AS run, e.seq, e.at_ms, e.kind, e.body FROM event e JOIN run r ON r.id = e.run_id \
                 WHERE r.campaign_id = $1 ORDER BY e.run_id, e.seq",
        import: from_rows!(
            concat!(
                "INSERT INTO event (run_id, seq, at_ms, kind, body) SELECT r.id, ",
                number!(1),
                ", ",
                number!(2),
                ", d.value ->> 3, d.value ->> 4 FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "route",
        columns: &[("needs", Kind::Text)],
        export: "SELECT DISTINCT route.needs FROM step s JOIN run r ON r.id = s.run_id \
                 JOIN route ON route.id = s.route_id WHERE r.campaign_id = $1 ORDER BY route.needs",
        // The rows may be stored already.
        import: from_rows!(
            "INSERT INTO route (needs) SELECT d.value ->> 0 FROM ",
            " WHERE true ON CONFLICT (needs) DO UPDATE SET needs = excluded.needs"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "step",
        columns: &[
            ("public_id", Kind::Text),
            ("run", Kind::Text),
            ("key", Kind::Text),
            ("kind", Kind::Text),
            ("route", Kind::Text),
            ("status", Kind::Text),
            ("epoch", Kind::Number),
            ("tries", Kind::Number),
            ("max_tries", Kind::Number),
            ("first_delay_ms", Kind::Number),
            ("max_delay_ms", Kind::Number),
            ("timeout_ms", Kind::Number),
            ("cost_ms", Kind::Number),
            ("reserve", Kind::OptText),
            ("worker", Kind::OptText),
            ("scheduled_seq", Kind::Number),
            ("output_seq", Kind::OptNumber),
            ("failure", Kind::OptText),
            ("scheduled_at_ms", Kind::Number),
            ("started_at_ms", Kind::OptNumber),
            ("finished_at_ms", Kind::OptNumber),
        ],
        export: "SELECT s.public_id, r.public_id AS run, s.key, s.kind, route.needs AS route, s.status, s.epoch, \
                 s.tries, s.max_tries, s.first_delay_ms, s.max_delay_ms, s.timeout_ms, s.cost_ms, s.reserve, \
                 s.worker, s.scheduled_seq, s.output_seq, s.failure, s.scheduled_at_ms, s.started_at_ms, \
                 s.finished_at_ms FROM step s JOIN run r ON r.id = s.run_id JOIN route ON route.id = s.route_id \
                 WHERE r.campaign_id = $1 ORDER BY s.run_id, s.scheduled_seq, s.id",
        import: from_rows!(
            concat!(
                "INSERT INTO step (public_id, run_id, key, kind, route_id, status, epoch, tries, max_tries, ",
                "first_delay_ms, max_delay_ms, timeout_ms, cost_ms, reserve, worker, scheduled_seq, output_seq, ",
                "failure, scheduled_at_ms, started_at_ms, finished_at_ms, id) ",
                "SELECT d.value ->> 0, r.id, d.value ->> 2, d.value ->> 3, route.id, d.value ->> 5, ",
                number!(6),
                ", ",
                number!(7),
                ", ",
                number!(8),
                ", ",
                number!(9),
                ", ",
                number!(10),
                ", ",
                number!(11),
                ", ",
                number!(12),
                ", d.value ->> 13, d.value ->> 14, ",
                number!(15),
                ", ",
                number!(16),
                ", d.value ->> 17, ",
                number!(18),
                ", ",
                number!(19),
                ", ",
                number!(20),
                ", ",
                number!(21),
                " FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 1 JOIN route ON route.needs = d.value ->> 4"
        ),
        has_step_ids: true,
        compared: Compared::Always,
    },
    Table {
        name: "step_input",
        columns: &[("step", Kind::Text), ("input", Kind::Text)],
        export: "SELECT s.public_id AS step, i.input FROM step_input i JOIN step s ON s.id = i.step_id \
                 JOIN run r ON r.id = s.run_id WHERE r.campaign_id = $1 ORDER BY s.run_id, s.scheduled_seq, s.id",
        import: from_rows!(
            "INSERT INTO step_input (step_id, input) SELECT s.id, d.value ->> 1 FROM ",
            " JOIN step s ON s.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "model_call",
        columns: &[
            ("run", Kind::Text),
            ("step_key", Kind::Text),
            ("turn", Kind::Number),
            ("request_hash", Kind::Text),
            ("summary", Kind::Text),
            ("at_ms", Kind::Number),
        ],
        export: "SELECT r.public_id AS run, m.step_key, m.turn, m.request_hash, m.summary, m.at_ms FROM model_call m \
                 JOIN run r ON r.id = m.run_id WHERE r.campaign_id = $1 \
                 ORDER BY m.run_id, m.step_key, m.turn, m.request_hash",
        import: from_rows!(
            concat!(
                "INSERT INTO model_call (run_id, step_key, turn, request_hash, summary, at_ms) ",
                "SELECT r.id, d.value ->> 1, ",
                number!(2),
                ", d.value ->> 3, d.value ->> 4, ",
                number!(5),
                " FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    // Older releases without state formats do not know this table, and refuse the archive.
    Table {
        name: "run_format",
        columns: &[("run", Kind::Text), ("state_format", Kind::Number)],
        export: "SELECT public_id AS run, state_format FROM run WHERE campaign_id = $1 AND state_format > 1 ORDER BY id",
        import: from_rows!(
            concat!("UPDATE run SET state_format = ", number!(1), " FROM "),
            " WHERE run.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::IfArchived,
    },
    Table {
        name: "artifact_use",
        columns: &[("run", Kind::Text), ("hash", Kind::Text)],
        export: "SELECT r.public_id AS run, u.hash FROM artifact_use u JOIN run r ON r.id = u.run_id \
                 WHERE r.campaign_id = $1 ORDER BY u.run_id, u.hash",
        import: from_rows!(
            "INSERT INTO artifact_use (run_id, hash) SELECT r.id, d.value ->> 1 FROM ",
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Always,
    },
    Table {
        name: "retrieval",
        columns: &[("run", Kind::Text), ("step_key", Kind::Text), ("items", Kind::Text), ("at_ms", Kind::Number)],
        export: "SELECT r.public_id AS run, t.step_key, t.items, t.at_ms FROM retrieval t \
                 JOIN run r ON r.id = t.run_id WHERE r.campaign_id = $1 ORDER BY t.run_id, t.step_key",
        import: from_rows!(
            concat!(
                "INSERT INTO retrieval (run_id, step_key, items, at_ms) SELECT r.id, d.value ->> 1, d.value ->> 2, ",
                number!(3),
                " FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::IfArchived,
    },
    Table {
        name: "attempt_score",
        columns: &[
            ("run", Kind::Text),
            ("attempt", Kind::Number),
            ("formula", Kind::Text),
            ("score", Kind::Text),
            ("at_ms", Kind::Number),
        ],
        export: "SELECT r.public_id AS run, a.attempt, a.formula, a.score, a.at_ms FROM attempt_score a \
                 JOIN run r ON r.id = a.run_id WHERE r.campaign_id = $1 ORDER BY a.run_id, a.attempt, a.formula",
        import: from_rows!(
            concat!(
                "INSERT INTO attempt_score (run_id, attempt, formula, score, at_ms) SELECT r.id, ",
                number!(1),
                ", d.value ->> 2, d.value ->> 3, ",
                number!(4),
                " FROM "
            ),
            " JOIN run r ON r.public_id = d.value ->> 0"
        ),
        has_step_ids: false,
        compared: Compared::Never,
    },
];
