//! Workers and their devices.

use nightshift_protocol::api::{
    Claim, Claimed, Drain, Heartbeat, HeartbeatReply, QuarantineView, RegisterWorker, Report, ReportReply,
    WorkerRegistered, WorkerView,
};

use super::call::{Call, Who, get, post};
use super::schemas::Schemas;

const AREA: &str = "workers";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/workers", AREA, Who::Reads, "Workers, last heard of first").gives(200, schemas.page_of::<WorkerView>()),
        post("/workers", AREA, Who::Works, "Makes a worker known")
            .creates()
            .takes(schemas.of::<RegisterWorker>())
            .gives(201, schemas.of::<WorkerRegistered>()),
        post("/workers/{id}/claim", AREA, Who::Works, "Leases steps; held until there are some")
            .takes(schemas.of::<Claim>())
            .gives(200, schemas.of::<Claimed>())
            .fails(403, &["auth.route_not_allowed"])
            .fails(404, &["worker.not_found"]),
        post("/workers/{id}/heartbeat", AREA, Who::Works, "Extends the leases of a worker")
            .takes(schemas.of::<Heartbeat>())
            .gives(200, schemas.of::<HeartbeatReply>())
            .fails(404, &["worker.not_found"]),
        post("/workers/{id}/drain", AREA, Who::Administers, "Lets a worker take nothing new, or go on")
            .takes(schemas.of::<Drain>())
            .gives_nothing(204, "It is told with its next heartbeat.")
            .fails(404, &["worker.not_found"]),
        post("/steps/{id}/report", AREA, Who::Works, "Reports how a try of a step ended")
            .takes(schemas.of::<Report>())
            .gives(200, schemas.of::<ReportReply>())
            .fails(400, &["request.output_mismatch"])
            .fails(404, &["step.not_found"]),
        get("/devices/quarantined", AREA, Who::Reads, "Devices on which nothing may run")
            .gives(200, schemas.page_of::<QuarantineView>()),
        post("/devices/{device}/release", AREA, Who::Operates, "Asks for a device to be tested and used again")
            .gives(200, schemas.of::<QuarantineView>())
            .fails(404, &["device.not_found"]),
    ]
}
