//! Tables, and exports of programs.

use nightshift_protocol::api::TableFormat;

use super::attempts::{attempt_sorts, filtered};
use super::call::{Call, Kind, Permission, get, orders};
use super::campaigns::{campaign_sorts, campaign_states};
use super::runs::run_statuses;
use super::schemas::{objects, text};
use crate::api::attempt_export::{ARCHIVE, PYTHON};

const AREA: &str = "exports";
const PARQUET: &str = "application/vnd.apache.parquet";
const BAD_QUERY: &[&str] = &["request.invalid_query"];

pub(super) fn calls() -> Vec<Call> {
    let order = |call: Call| {
        call.query("sort", attempt_sorts(), "What attempts are sorted by.").query(
            "order",
            orders(),
            "Which end comes first.",
        )
    };
    let of_run = |path, about| {
        table(get(path, AREA, Permission::Reads, about).query("run", Kind::Text, "The run."))
            .fails(404, &["run.not_found"])
    };
    vec![
        table(
            get("/tables/campaigns", AREA, Permission::Reads, "All matching campaigns, sorted, as a file")
                .query("name", Kind::Text, "Only those of exactly this name.")
                .query("q", Kind::Text, "Only those that hold every one of these words in name, model or id.")
                .query("status", campaign_states(), "Only those with such runs.")
                .query("sort", campaign_sorts(), "What campaigns are sorted by.")
                .query("order", orders(), "Which end comes first."),
        ),
        table(
            get("/tables/runs", AREA, Permission::Reads, "All matching runs, as a file")
                .query("campaign", Kind::Text, "Only those of this campaign, in the order of its tasks.")
                .query("status", run_statuses(), "Only those of this status."),
        )
        .fails(404, &["campaign.not_found"]),
        table(order(filtered(get(
            "/tables/attempts",
            AREA,
            Permission::Reads,
            "All matching attempts, sorted, as a file",
        )))),
        table(filtered(get(
            "/tables/tasks",
            AREA,
            Permission::Reads,
            "The best attempts of tasks by device, as a file",
        ))),
        table(filtered(get("/tables/models", AREA, Permission::Reads, "Results of models and strategies, as a file"))),
        table(get("/tables/workers", AREA, Permission::Reads, "Workers, as a file").query(
            "show",
            Kind::OneOf(vec!["alive", "silent"]),
            "Only those that were heard of lately, or only others.",
        )),
        of_run("/tables/steps", "The steps of a run, as a file"),
        of_run("/tables/events", "The log of a run, as a file"),
        program(
            get(
                "/attempts/at/{run}/{number}/model-new",
                AREA,
                Permission::Reads,
                "The program of an attempt as a ModelNew: one file of Python that compiles and calls it",
            )
            .gives_other(200, PYTHON, "The file."),
        ),
        program(
            get(
                "/attempts/at/{run}/{number}/project",
                AREA,
                Permission::Reads,
                "The program of an attempt as a CMake project that checks and times it",
            )
            .gives_other(200, ARCHIVE, "A folder as .tar.gz."),
        ),
    ]
}

fn table(call: Call) -> Call {
    call.query("format", Kind::OneOf(TableFormat::ALL.map(TableFormat::as_str).to_vec()), "By default csv.")
        .gives_one_of(200, vec![("text/csv", text()), ("application/json", objects()), (PARQUET, text())], "The table.")
        .fails(400, BAD_QUERY)
        .fails(503, &["server.too_many_tables"])
}

fn program(call: Call) -> Call {
    call.fails(404, &["attempt.not_found", "run.not_found", "artifact.not_found"])
        .fails(409, &["attempt.no_source", "attempt.torch_form"])
}
