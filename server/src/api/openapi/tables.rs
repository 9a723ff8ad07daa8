//! Tables, and exports of programs.

use super::attempts::filtered;
use super::call::{Call, Kind, Permission, get};
use crate::api::attempt_export::{ARCHIVE, PYTHON};

const AREA: &str = "exports";
const BAD_QUERY: &[&str] = &["request.invalid_query"];

pub(super) fn calls() -> Vec<Call> {
    let order = |call: Call| {
        call.query("sort", Kind::Text, "created, finished, speedup, reward, cost or tokens.").query(
            "order",
            Kind::Text,
            "asc or desc.",
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
                .query("status", Kind::Text, "unfinished, finished, failed or paused: only those with such runs.")
                .query(
                    "sort",
                    Kind::Text,
                    "created, name, model, progress, running, failed, speedup, cost or duration.",
                )
                .query("order", Kind::Text, "asc or desc."),
        ),
        table(
            get("/tables/runs", AREA, Permission::Reads, "All matching runs, as a file")
                .query("campaign", Kind::Text, "Only those of this campaign, in the order of its tasks.")
                .query("status", Kind::Text, "Only those of this status."),
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
            Kind::Text,
            "alive or silent.",
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
    call.query("format", Kind::Text, "csv (the default), json or parquet.")
        .gives_other(
            200,
            "text/csv",
            "The table. `application/json` and `application/vnd.apache.parquet` where asked for.",
        )
        .fails(400, BAD_QUERY)
}

fn program(call: Call) -> Call {
    call.fails(404, &["attempt.not_found", "run.not_found", "artifact.not_found"])
        .fails(409, &["attempt.no_source", "attempt.torch_form"])
}
