//! Campaigns.

use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, CampaignPage, CampaignResults, CampaignSort, CampaignState, Control, Controlled,
    CreateCampaign, SetLimits, SetPriority,
};

use super::call::{Call, Kind, Permission, get, orders, post};
use super::schemas::Schemas;

const AREA: &str = "campaigns";

/// Returns the states of campaigns, as a query names them.
pub(super) fn campaign_states() -> Kind {
    Kind::OneOf(CampaignState::ALL.map(CampaignState::as_str).to_vec())
}

/// Returns what campaigns can be sorted by.
pub(super) fn campaign_sorts() -> Kind {
    Kind::OneOf(CampaignSort::ALL.map(CampaignSort::as_str).to_vec())
}

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get(
            "/campaigns",
            AREA,
            Permission::Reads,
            "Campaigns that match a filter, sorted; by default the newest first",
        )
        .query("name", Kind::Text, "Only those of exactly this name.")
        .query("q", Kind::Text, "Only those whose name, model or id has these words.")
        .query("status", campaign_states(), "Only unfinished, finished, failed (a run failed) or paused ones.")
        .query("sort", campaign_sorts(), "What campaigns are sorted by.")
        .query("order", orders(), "Which end comes first.")
        .pages()
        .gives(200, schemas.of::<CampaignPage>())
        .fails(400, &["request.invalid_query"])
        .fails(404, &["campaign.not_found"]),
        get("/campaigns/{id}/results", AREA, Permission::Reads, "Results of a campaign, over all of its attempts")
            .query("from", Kind::Number, "First place of the attempts that are listed individually.")
            .query("to", Kind::Number, "The last one.")
            .gives(200, schemas.of::<CampaignResults>())
            .fails(400, &["request.invalid_query"])
            .fails(404, &["campaign.not_found"]),
        get("/campaigns/{id}", AREA, Permission::Reads, "A campaign with its runs and its budget")
            .gives(200, schemas.of::<CampaignDetail>())
            .versioned()
            .fails(404, &["campaign.not_found"]),
        post("/campaigns", AREA, Permission::Operates, "Creates a campaign whose artifacts are stored already")
            .creates()
            .takes(schemas.of::<CreateCampaign>())
            .gives(201, schemas.of::<CampaignCreated>())
            .gives(200, schemas.of::<CampaignCreated>())
            .fails(
                400,
                &[
                    "campaign.unsupported_schema",
                    "campaign.invalid_name",
                    "campaign.unknown_strategy",
                    "campaign.unknown_endpoint",
                    "campaign.unknown_price",
                    "campaign.task_count",
                    "campaign.invalid_model",
                    "campaign.invalid_goal",
                    "campaign.invalid_budget",
                    "campaign.bad_schedule",
                    "campaign.window_too_short",
                    "campaign.invalid_priority",
                    "campaign.invalid_weight",
                    "campaign.invalid_task_name",
                    "campaign.duplicate_task",
                    "campaign.artifact_missing",
                    "campaign.replies_missing",
                    "campaign.replies_malformed",
                    "task.malformed",
                    "task.unsupported_schema",
                    "task.invalid_shape",
                    "task.too_large",
                    "request.invalid",
                    "request.malformed_json",
                ],
            ),
        post("/campaigns/{id}/control", AREA, Permission::Operates, "Pauses, resumes or cancels every unfinished run")
            .takes(schemas.of::<Control>())
            .gives(200, schemas.of::<Controlled>())
            .fails(404, &["campaign.not_found"])
            .fails(409, &["campaign.handed_over"]),
        post("/campaigns/{id}/priority", AREA, Permission::Operates, "Changes the priority of every unfinished run")
            .takes(schemas.of::<SetPriority>())
            .gives_nothing(204, "It is changed.")
            .fails(400, &["campaign.invalid_priority"])
            .fails(404, &["campaign.not_found"])
            .fails(409, &["run.over"]),
        post("/campaigns/{id}/limits", AREA, Permission::Operates, "Changes budget, schedule or weight")
            .takes(schemas.of::<SetLimits>())
            .gives(200, schemas.of::<CampaignDetail>())
            .fails(
                400,
                &[
                    "request.invalid",
                    "campaign.bad_schedule",
                    "campaign.window_too_short",
                    "campaign.invalid_budget",
                    "campaign.unknown_price",
                    "campaign.invalid_weight",
                ],
            )
            .fails(404, &["campaign.not_found"]),
        get("/campaigns/{id}/archive", AREA, Permission::Operates, "Exports the campaign as one file")
            .gives_other(200, "application/zstd", "A zstd stream of JSON lines.")
            .fails(404, &["campaign.not_found"])
            .fails(507, &["archive.not_kept"]),
        post("/import", AREA, Permission::Administers, "Imports a campaign from its file")
            .takes_bytes()
            .gives(201, schemas.of::<CampaignCreated>())
            .gives(200, schemas.of::<CampaignCreated>())
            .fails(409, &["archive.differs"])
            .fails(413, &["archive.too_large"])
            .fails(422, &["archive.unreadable", "archive.cut", "archive.wrong_version", "archive.differs"]),
    ]
}
