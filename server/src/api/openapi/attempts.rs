//! Attempts over all runs, leaderboards, and the search.

use nightshift_protocol::api::{
    AttemptPage, AttemptRow, AttemptSort, ModelBoard, POINTS_CONTENT_TYPE, PointValue, SearchKind, SearchPage,
    TaskBoard,
};
use nightshift_protocol::attempt::Stage;
use nightshift_protocol::attempt_outcome::AttemptOutcome;

use super::call::{Call, Kind, Permission, get, orders};
use super::schemas::Schemas;

const AREA: &str = "attempts";
const BAD_QUERY: &[&str] = &["request.invalid_query"];

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        filtered(get("/attempts", AREA, Permission::Reads, "Attempts of all runs that match a filter, sorted"))
            .query("sort", attempt_sorts(), "What attempts are sorted by.")
            .query("order", orders(), "Which end comes first.")
            .query("facets", Kind::Flag, "Whether to include counts by outcome, stage and model.")
            .pages()
            .gives(200, schemas.of::<AttemptPage>())
            .fails(400, BAD_QUERY),
        filtered(get("/attempts/points", AREA, Permission::Reads, "A point for each matching attempt, packed"))
            .query("value", Kind::OneOf(PointValue::ALL.map(PointValue::as_str).to_vec()), "What the points show.")
            .gives_other(200, POINTS_CONTENT_TYPE, "Little-endian columns; docs/reference/api.md describes them.")
            .fails(400, BAD_QUERY),
        get(
            "/attempts/at/{run}/{number}",
            AREA,
            Permission::Reads,
            "The attempt of a point, by the two numbers it carries",
        )
        .gives(200, schemas.of::<AttemptRow>())
        .fails(404, &["attempt.not_found"]),
        filtered(get("/tasks", AREA, Permission::Reads, "The best attempts of each task on each device"))
            .pages()
            .gives(200, schemas.page_of::<TaskBoard>())
            .fails(400, BAD_QUERY),
        filtered(get("/models", AREA, Permission::Reads, "Results of each model and strategy"))
            .pages()
            .gives(200, schemas.page_of::<ModelBoard>())
            .fails(400, BAD_QUERY),
        get("/search", AREA, Permission::Reads, "Full-text search in sources, replies, diagnoses and errors")
            .query("q", Kind::Text, "The words.")
            .query("campaign", Kind::Text, "Only what is in this campaign.")
            .query("run", Kind::Text, "Only what is in this run.")
            .query("task", Kind::Text, "Only what belongs to this task.")
            .query(
                "kind",
                Kind::SomeOf(SearchKind::ALL.map(SearchKind::as_str).to_vec()),
                "Only texts of these kinds, with commas between them.",
            )
            .pages()
            .gives(200, schemas.of::<SearchPage>())
            .fails(400, BAD_QUERY),
    ]
}

/// Returns what attempts can be sorted by.
pub(super) fn attempt_sorts() -> Kind {
    Kind::OneOf(AttemptSort::ALL.map(AttemptSort::as_str).to_vec())
}

/// Adds the filter of attempts.
pub(super) fn filtered(call: Call) -> Call {
    let outcomes = Kind::SomeOf(AttemptOutcome::ALL.map(AttemptOutcome::as_str).to_vec());
    let stages = Kind::SomeOf(Stage::ALL.map(Stage::as_str).to_vec());
    call.query("campaign", Kind::Text, "Only attempts of this campaign.")
        .query("run", Kind::Text, "Only attempts of this run.")
        .query("task", Kind::Text, "Only attempts at this task.")
        .query("model", Kind::Text, "Only attempts of this model.")
        .query("strategy", Kind::Text, "Only attempts of this strategy.")
        .query("device", Kind::Text, "Only attempts that were measured on this device.")
        .query("outcome", outcomes, "Only these outcomes, with commas between them.")
        .query("stage", stages, "Only these stages, with commas between them.")
        .query("correct", Kind::Flag, "Only correct ones, or only others.")
        .query("confirmed", Kind::Flag, "Only confirmed ones, or only others.")
        .query("min_speedup", Kind::Decimal, "Only from this speedup over the reference on.")
        .query("max_speedup", Kind::Decimal, "Only up to this speedup over the reference.")
        .query("min_speedup_over_fastest", Kind::Decimal, "Only from this speedup over the fastest baseline on.")
        .query("max_speedup_over_fastest", Kind::Decimal, "Only up to this speedup over the fastest baseline.")
        .query("min_reward", Kind::Decimal, "Only from this reward on.")
        .query("max_reward", Kind::Decimal, "Only up to this reward.")
        .query("tag", Kind::Text, "Only attempts with this tag of the team.")
        .query("q", Kind::Text, "Only attempts that contain these words.")
}
