//! Hand-overs of campaigns.

use nightshift_protocol::api::{BeginHandover, HandoverDetail, HandoverFile, HandoverFinished};

use super::call::{Call, Permission, post};
use super::schemas::Schemas;

const AREA: &str = "campaigns";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        post("/campaigns/{id}/handover", AREA, Permission::Operates, "Checks a campaign out to another machine")
            .takes(schemas.of::<BeginHandover>())
            .gives(200, schemas.of::<HandoverDetail>())
            .fails(400, &["request.invalid", "request.malformed_json"])
            .fails(404, &["campaign.not_found"])
            .fails(409, &["campaign.handed_over", "handover.nothing_left", "handover.cancelling"]),
        post("/campaigns/{id}/handover/file", AREA, Permission::Operates, "The file of a campaign that is checked out")
            .takes(schemas.of::<HandoverFile>())
            .gives_other(200, "application/zstd", "A zstd stream of JSON lines. It holds the key of the hand-over.")
            .fails(400, &["request.invalid", "request.malformed_json"])
            .fails(404, &["campaign.not_found"])
            .fails(409, &["handover.none", "handover.not_out"])
            .fails(507, &["archive.not_kept"]),
        post("/campaigns/{id}/handover/cancel", AREA, Permission::Operates, "Cancels a hand-over without results")
            .gives(200, schemas.of::<HandoverDetail>())
            .fails(404, &["campaign.not_found"])
            .fails(409, &["handover.none"]),
        post(
            "/handovers/finish",
            AREA,
            Permission::Operates,
            "Merges the results of a hand-over; repeating the same file succeeds",
        )
        .takes_bytes()
        .gives(200, schemas.of::<HandoverFinished>())
        .fails(
            409,
            &[
                "handover.unknown",
                "handover.not_out",
                "handover.cancelled",
                "handover.finished",
                "handover.diverged",
                "archive.unusable",
            ],
        )
        .fails(413, &["archive.too_large"])
        .fails(
            422,
            &[
                "archive.unreadable",
                "archive.cut",
                "archive.differs",
                "handover.wrong_direction",
                "handover.wrong_version",
                "handover.newer_release",
                "handover.tampered",
            ],
        ),
    ]
}
