//! Annotations of a campaign as tables of its archive: notes, tags, pins.
//!
//! Share links are omitted, because they are secrets of the server that created them. Annotations do not count when two
//! campaigns are compared.

use super::archive_tables::{Compared, Kind, Table};
use crate::sql::from_rows;

/// Campaign and run of an archived row, whose target (column 0) must be one of them.
macro_rules! of_target {
    () => {
        " JOIN campaign c ON c.public_id = d.value ->> 1 \
          LEFT JOIN run r ON r.public_id = d.value ->> 2 AND r.campaign_id = c.id \
          WHERE ((d.value ->> 2) IS NULL OR r.id IS NOT NULL) \
            AND substr(d.value ->> 0, 1, length(coalesce(r.public_id, c.public_id))) = coalesce(r.public_id, c.public_id) \
          ORDER BY d.key"
    };
}

/// The tables that follow those of the campaign itself.
pub(crate) const TEAM_TABLES: &[Table] = &[
    Table {
        name: "remark",
        columns: &[
            ("target", Kind::Text),
            ("campaign", Kind::Text),
            ("run", Kind::OptText),
            ("public_id", Kind::Text),
            ("body", Kind::Text),
            ("author", Kind::Text),
            ("created_at_ms", Kind::Number),
            ("edited_at_ms", Kind::OptNumber),
        ],
        export: "SELECT n.target, c.public_id AS campaign, r.public_id AS run, n.public_id, n.body, n.author, \
                 n.created_at_ms, n.edited_at_ms FROM remark n JOIN campaign c ON c.id = n.campaign_id \
                 LEFT JOIN run r ON r.id = n.run_id WHERE n.campaign_id = $1 ORDER BY n.id",
        import: from_rows!(
            "INSERT INTO remark (target, campaign_id, run_id, public_id, body, author, created_at_ms, edited_at_ms) \
             SELECT d.value ->> 0, c.id, r.id, d.value ->> 3, d.value ->> 4, d.value ->> 5, \
                    CAST(d.value ->> 6 AS BIGINT), CAST(d.value ->> 7 AS BIGINT) FROM ",
            of_target!()
        ),
        has_step_ids: false,
        compared: Compared::Never,
    },
    Table {
        name: "tag",
        columns: &[
            ("target", Kind::Text),
            ("campaign", Kind::Text),
            ("run", Kind::OptText),
            ("tag", Kind::Text),
            ("author", Kind::Text),
            ("at_ms", Kind::Number),
        ],
        export: "SELECT t.target, c.public_id AS campaign, r.public_id AS run, t.tag, t.author, t.at_ms FROM tag t \
                 JOIN campaign c ON c.id = t.campaign_id LEFT JOIN run r ON r.id = t.run_id \
                 WHERE t.campaign_id = $1 ORDER BY t.id",
        import: from_rows!(
            "INSERT INTO tag (target, campaign_id, run_id, tag, author, at_ms) \
             SELECT d.value ->> 0, c.id, r.id, d.value ->> 3, d.value ->> 4, CAST(d.value ->> 5 AS BIGINT) FROM ",
            of_target!()
        ),
        has_step_ids: false,
        compared: Compared::Never,
    },
    Table {
        name: "pin",
        columns: &[
            ("target", Kind::Text),
            ("campaign", Kind::Text),
            ("run", Kind::OptText),
            ("label", Kind::Text),
            ("author", Kind::Text),
            ("at_ms", Kind::Number),
        ],
        export: "SELECT p.target, c.public_id AS campaign, r.public_id AS run, p.label, p.author, p.at_ms FROM pin p \
                 JOIN campaign c ON c.id = p.campaign_id LEFT JOIN run r ON r.id = p.run_id \
                 WHERE p.campaign_id = $1 ORDER BY p.id",
        import: from_rows!(
            "INSERT INTO pin (target, campaign_id, run_id, label, author, at_ms) \
             SELECT d.value ->> 0, c.id, r.id, d.value ->> 3, d.value ->> 4, CAST(d.value ->> 5 AS BIGINT) FROM ",
            of_target!()
        ),
        has_step_ids: false,
        compared: Compared::Never,
    },
];
