//! Runs, ids, live events and artifacts.

use nightshift_protocol::api::{
    Bulk, BulkDone, Control, Controlled, EventsPage, IdMatches, LAST_EVENT_ID_HEADER, LiveEvent, Retrieval, Retry,
    RunDetail, RunSummary, SetPriority, StepView, UPLOAD_OFFSET_HEADER, UPLOAD_SIZE_HEADER,
};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::score::{Rescore, RunScores};
use nightshift_protocol::signal::Signal;
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, Kind, Permission, get, post};
use super::schemas::Schemas;

const RUNS: &str = "runs";
const LIVE: &str = "live";
const ARTIFACTS: &str = "artifacts";

/// Returns the statuses of runs, as a query names them.
pub(super) fn run_statuses() -> Kind {
    Kind::OneOf(RunStatus::ALL.map(RunStatus::as_str).to_vec())
}

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    let mut calls = reading(schemas);
    calls.extend(changing(schemas));
    calls.extend(artifacts());
    calls
}

fn reading(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/runs", RUNS, Permission::Reads, "Runs, newest first; of one campaign in the order of its tasks")
            .query("campaign", Kind::Text, "Only those of this campaign.")
            .query("status", run_statuses(), "Only those of this status.")
            .pages()
            .gives(200, schemas.page_of::<RunSummary>())
            .fails(400, &["request.invalid_query"])
            .fails(404, &["campaign.not_found"]),
        get("/runs/{id}", RUNS, Permission::Reads, "All details of a run")
            .gives(200, schemas.of::<RunDetail>())
            .versioned()
            .fails(404, &["run.not_found"]),
        get("/runs/{id}/steps", RUNS, Permission::Reads, "The steps of a run, in the order they were scheduled")
            .pages()
            .gives(200, schemas.page_of::<StepView>())
            .fails(404, &["run.not_found"]),
        get("/runs/{id}/events", RUNS, Permission::Reads, "The log of a run after a position; waits for new events")
            .query("after", Kind::Number, "The position.")
            .query("wait_ms", Kind::Number, "Maximum wait, up to 25000.")
            .gives(200, schemas.of::<EventsPage>())
            .fails(400, &["request.invalid_query"])
            .fails(404, &["run.not_found"]),
        get("/runs/{id}/scores", RUNS, Permission::Reads, "Scores of the attempts that were computed after the run")
            .gives(200, schemas.of::<RunScores>())
            .fails(404, &["run.not_found"]),
        get("/runs/{id}/retrievals", RUNS, Permission::Reads, "Notes and lessons that model calls received, by step")
            .query("attempt", Kind::Number, "Only the steps of this attempt.")
            .pages()
            .gives(200, schemas.page_of::<Retrieval>())
            .fails(400, &["request.invalid_query"])
            .fails(404, &["run.not_found"]),
        get("/ids/{text}", RUNS, Permission::Reads, "Campaigns and runs that match a part of an id")
            .gives(200, schemas.of::<IdMatches>())
            .fails(400, &["request.invalid_id"]),
        get("/live", LIVE, Permission::Reads, "A stream of changes; each event is a LiveEvent")
            .query("campaign", Kind::Text, "Only what is about this campaign.")
            .query("run", Kind::Text, "Only what is about this run.")
            .query("after", Kind::Text, "Id of the last event that the client has.")
            .query(
                "pause_ms",
                Kind::Number,
                "Minimum time between two bursts of events, at most 60000. Events in between are sent together.",
            )
            .header(LAST_EVENT_ID_HEADER, false, "The same; it takes precedence over the query.")
            .streams(schemas.of::<LiveEvent>(), "The data of each event, until the client or the server ends it.")
            .fails(400, &["request.invalid_query"])
            .fails(404, &["campaign.not_found", "run.not_found"])
            .fails(503, &["server.too_many_streams"]),
    ]
}

fn changing(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        post("/runs/{id}/control", RUNS, Permission::Operates, "Pauses, resumes or cancels a run")
            .takes(schemas.of::<Control>())
            .gives(200, schemas.of::<Controlled>())
            .fails(404, &["run.not_found"])
            .fails(409, &["request.illegal_transition", "campaign.handed_over"]),
        post("/runs/{id}/retry", RUNS, Permission::Operates, "Schedules the failed steps of a run again")
            .takes(schemas.of::<Retry>())
            .gives(200, schemas.of::<Controlled>())
            .fails(404, &["run.not_found", "store.not_found"])
            .fails(409, &["request.illegal_transition", "campaign.handed_over"]),
        post(
            "/runs/{id}/scores",
            RUNS,
            Permission::Operates,
            "Computes the scores of the attempts again, and stores them",
        )
        .takes(schemas.of::<Rescore>())
        .gives(200, schemas.of::<RunScores>())
        .fails(404, &["run.not_found"]),
        post(
            "/runs/{id}/signals",
            RUNS,
            Permission::Operates,
            "Sends a signal to a run: a hint, or an answer to a gate",
        )
        .creates()
        .takes(schemas.of::<Signal>())
        .gives_nothing(204, "It is heard.")
        .fails(400, &["signal.invalid_text"])
        .fails(404, &["run.not_found"])
        .fails(409, &["run.over", "signal.not_awaited", "campaign.handed_over"]),
        post("/runs/{id}/priority", RUNS, Permission::Operates, "Changes the priority of a run's steps")
            .takes(schemas.of::<SetPriority>())
            .gives_nothing(204, "It is changed.")
            .fails(400, &["campaign.invalid_priority"])
            .fails(404, &["run.not_found"])
            .fails(409, &["run.over"]),
        post("/runs/bulk", RUNS, Permission::Operates, "Applies one action to every run that matches a filter")
            .creates()
            .takes(schemas.of::<Bulk>())
            .gives(200, schemas.of::<BulkDone>())
            .fails(400, &["request.invalid"]),
    ]
}

fn artifacts() -> Vec<Call> {
    let path = "/artifacts/{hash}";
    vec![
        get(path, ARTIFACTS, Permission::ReadsOrWorks, "A blob, or a part of it")
            .header("range", false, "One range of bytes.")
            .gives_other(200, "application/octet-stream", "The bytes.")
            .gives_other(206, "application/octet-stream", "The part.")
            .fails(404, &["artifact.not_found"]),
        Call::new(HttpMethod::Head, path, ARTIFACTS, Permission::ReadsOrWorks, "The upload progress of an artifact")
            .gives_nothing(200, "It is complete.")
            .gives_nothing(204, "A part of it is stored.")
            .fails(404, &["artifact.not_found"]),
        Call::new(HttpMethod::Put, path, ARTIFACTS, Permission::OperatesOrWorks, "Stores a blob under its hash")
            .takes_bytes()
            .gives_nothing(204, "It is stored.")
            .fails(400, &["artifact.invalid_hash", "artifact.hash_mismatch", "artifact.no_length"])
            .fails(413, &["request.too_large", "artifact.too_large"]),
        Call::new(HttpMethod::Patch, path, ARTIFACTS, Permission::OperatesOrWorks, "Appends a part of a blob")
            .header(UPLOAD_OFFSET_HEADER, true, "Offset of the part.")
            .header(UPLOAD_SIZE_HEADER, true, "Size of the whole artifact.")
            .takes_bytes()
            .gives_nothing(204, "The part is stored.")
            .fails(400, &["artifact.invalid_hash", "artifact.wrong_hash", "artifact.wrong_size"])
            .fails(409, &["artifact.wrong_offset", "artifact.upload_disturbed"])
            .fails(413, &["artifact.part_too_large", "artifact.too_large"]),
    ]
}
