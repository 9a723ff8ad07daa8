//! Workers and their devices.

use nightshift_protocol::api::{
    Claim, Claimed, Drain, Heartbeat, HeartbeatReply, QuarantineView, RegisterWorker, Report, ReportReply,
    WorkerRegistered, WorkerView,
};

use super::call::{Call, Permission, get, post};
use super::schemas::Schemas;

const AREA: &str = "workers";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/workers", AREA, Permission::Reads, "Workers, most recently seen first")
            .pages()
            .gives(200, schemas.page_of::<WorkerView>()),
        post("/workers", AREA, Permission::Works, "Registers a worker")
            .creates()
            .takes(schemas.of::<RegisterWorker>())
            .gives(201, schemas.of::<WorkerRegistered>()),
        post("/workers/{id}/claim", AREA, Permission::Works, "Leases steps; waits until some are ready")
            .takes(schemas.of::<Claim>())
            .gives(200, schemas.of::<Claimed>())
            .fails(403, &["auth.route_not_allowed"])
            .fails(404, &["worker.not_found"]),
        post("/workers/{id}/heartbeat", AREA, Permission::Works, "Extends the leases of a worker")
            .takes(schemas.of::<Heartbeat>())
            .gives(200, schemas.of::<HeartbeatReply>())
            .fails(404, &["worker.not_found"]),
        post("/workers/{id}/drain", AREA, Permission::Administers, "Drains a worker, or lets it resume")
            .takes(schemas.of::<Drain>())
            .gives_nothing(204, "The worker learns it with its next heartbeat.")
            .fails(404, &["worker.not_found"]),
        post("/steps/{id}/report", AREA, Permission::Works, "Reports how a try of a step ended")
            .takes(schemas.of::<Report>())
            .gives(200, schemas.of::<ReportReply>())
            .fails(400, &["request.output_mismatch"])
            .fails(404, &["step.not_found"]),
        get("/devices/quarantined", AREA, Permission::Reads, "Quarantined devices")
            .pages()
            .gives(200, schemas.page_of::<QuarantineView>()),
        post(
            "/devices/{device}/release",
            AREA,
            Permission::Operates,
            "Requests that a device is tested and used again",
        )
        .gives(200, schemas.of::<QuarantineView>())
        .fails(404, &["device.not_found"]),
    ]
}
