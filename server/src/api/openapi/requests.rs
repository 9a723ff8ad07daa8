//! Requests.

use nightshift_protocol::api::{
    AnswerRequest, ExtendRequest, LeasedRequest, NextRequest, ReleaseRequest, RequestAnswered, RequestDetail,
    RequestView,
};

use super::call::{Call, Kind, Permission, get, post};
use super::schemas::Schemas;

const AREA: &str = "requests";

/// Error codes of a request that does not wait for an answer under this lease.
const OVER: [&str; 4] = ["request.lease_lost", "request.answered", "request.expired", "request.cancelled"];

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/requests", AREA, Permission::Reads, "Open model calls that wait for an outside agent, newest first")
            .query("campaign", Kind::Text, "Only of this campaign.")
            .query("run", Kind::Text, "Only of this run.")
            .query("all", Kind::Flag, "Include those that do not wait for an answer any more.")
            .pages()
            .gives(200, schemas.page_of::<RequestView>())
            .fails(400, &["request.invalid_query"]),
        get("/requests/{id}", AREA, Permission::Reads, "A request with its prompt and schema")
            .gives(200, schemas.of::<RequestDetail>())
            .fails(404, &["request.not_found"]),
        post("/requests/next", AREA, Permission::Operates, "Leases the oldest open request, or waits for one")
            .takes(schemas.of::<NextRequest>())
            .gives(200, schemas.of::<LeasedRequest>())
            .gives_nothing(204, "No request is open.")
            .fails(400, &["request.invalid"])
            .fails(404, &["campaign.not_found", "run.not_found"]),
        post(
            "/requests/{id}/answer",
            AREA,
            Permission::Operates,
            "Answers a request; repeating the same answer succeeds",
        )
        .takes(schemas.of::<AnswerRequest>())
        .gives(200, schemas.of::<RequestAnswered>())
        .fails(400, &["request.invalid"])
        .fails(404, &["request.not_found"])
        .fails(409, &OVER)
        .fails(409, &["request.busy"])
        .fails(413, &["answer.too_large"])
        .fails(422, &["answer.empty", "answer.not_json", "answer.schema_mismatch", "answer.no_code", "answer.no_call"]),
        post("/requests/{id}/extend", AREA, Permission::Operates, "Moves the end of a lease on a request")
            .takes(schemas.of::<ExtendRequest>())
            .gives(200, schemas.of::<RequestView>())
            .fails(400, &["request.invalid"])
            .fails(404, &["request.not_found"])
            .fails(409, &OVER),
        post("/requests/{id}/release", AREA, Permission::Operates, "Releases a request to other agents")
            .takes(schemas.of::<ReleaseRequest>())
            .gives_nothing(204, "It is open again.")
            .fails(404, &["request.not_found"])
            .fails(409, &["request.lease_lost"]),
    ]
}
