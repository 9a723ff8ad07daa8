//! Notes, tags, pins, views and links.

use nightshift_protocol::api::{
    ChangeTags, CreateShare, EditRemark, NewRemark, Pin, PutSavedView, Remark, SavedView, SetPin, Share, ShareCreated,
    Tag, TagCount,
};
use utoipa::openapi::path::HttpMethod;

use super::call::{Call, Kind, Permission, get, post};
use super::schemas::Schemas;

const NOTES: &str = "notes";
const TAGS: &str = "tags";
const PINS: &str = "pins";
const VIEWS: &str = "views";
const SHARES: &str = "shares";

pub(super) fn calls(schemas: &mut Schemas) -> Vec<Call> {
    let mut calls = about_targets(schemas);
    calls.extend(views(schemas));
    calls.extend(shares(schemas));
    calls
}

/// Returns a list call about campaigns, runs and attempts.
fn list(path: &'static str, area: &'static str, summary: &'static str) -> Call {
    get(path, area, Permission::Reads, summary)
        .query("target", Kind::Text, "Only what is about this campaign, run or attempt.")
        .query("within", Kind::Flag, "Whether to include those of the target's runs and attempts.")
        .pages()
        .fails(400, &["request.invalid_query"])
        .fails(404, &["campaign.not_found", "run.not_found"])
}

const UNKNOWN_TARGET: &[&str] = &["campaign.not_found", "run.not_found", "attempt.not_found"];

fn about_targets(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        list("/notes", NOTES, "Notes, newest first").gives(200, schemas.page_of::<Remark>()),
        post("/notes", NOTES, Permission::Operates, "Creates a note in Markdown")
            .creates()
            .takes(schemas.of::<NewRemark>())
            .gives(201, schemas.of::<Remark>())
            .fails(400, &["note.invalid_text"])
            .fails(404, UNKNOWN_TARGET),
        Call::new(HttpMethod::Put, "/notes/{id}", NOTES, Permission::Operates, "Replaces the text of a note")
            .takes(schemas.of::<EditRemark>())
            .gives(200, schemas.of::<Remark>())
            .fails(400, &["note.invalid_text"])
            .fails(403, &["access.not_yours"])
            .fails(404, &["note.not_found"]),
        Call::new(HttpMethod::Delete, "/notes/{id}", NOTES, Permission::Operates, "Deletes a note")
            .gives_nothing(204, "It is deleted.")
            .fails(403, &["access.not_yours"])
            .fails(404, &["note.not_found"]),
        list("/tags", TAGS, "Tags with their targets, newest first")
            .query("tag", Kind::Text, "Only this tag.")
            .gives(200, schemas.page_of::<Tag>()),
        get("/tags/names", TAGS, Permission::Reads, "The existing tags, the most used first; at most 500")
            .pages()
            .gives(200, schemas.page_of::<TagCount>()),
        post("/tags", TAGS, Permission::Operates, "Adds and removes tags; returns the tags of the target")
            .takes(schemas.of::<ChangeTags>())
            .gives(200, schemas.page_of::<Tag>())
            .fails(400, &["tag.invalid", "request.invalid"])
            .fails(404, UNKNOWN_TARGET)
            .fails(409, &["tag.too_many"]),
        list("/pins", PINS, "Pins, newest first").gives(200, schemas.page_of::<Pin>()),
        post("/pins", PINS, Permission::Operates, "Sets or removes a pin; returns the pins of the target")
            .takes(schemas.of::<SetPin>())
            .gives(200, schemas.page_of::<Pin>())
            .fails(400, &["pin.invalid_label"])
            .fails(404, UNKNOWN_TARGET),
    ]
}

fn views(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/views", VIEWS, Permission::Reads, "The caller's views and shared views, newest first")
            .query("page", Kind::Text, "Only views of this page.")
            .pages()
            .gives(200, schemas.page_of::<SavedView>())
            .fails(400, &["request.invalid_query"]),
        post("/views", VIEWS, Permission::Named, "Saves a page with its query under a name")
            .creates()
            .takes(schemas.of::<PutSavedView>())
            .gives(201, schemas.of::<SavedView>())
            .fails(400, &["view.invalid"])
            .fails(409, &["view.too_many"]),
        Call::new(HttpMethod::Put, "/views/{id}", VIEWS, Permission::Named, "Changes a view")
            .takes(schemas.of::<PutSavedView>())
            .gives(200, schemas.of::<SavedView>())
            .fails(400, &["view.invalid"])
            .fails(403, &["access.not_yours"])
            .fails(404, &["view.not_found"]),
        Call::new(HttpMethod::Delete, "/views/{id}", VIEWS, Permission::Named, "Deletes a view")
            .gives_nothing(204, "It is deleted.")
            .fails(403, &["access.not_yours"])
            .fails(404, &["view.not_found"]),
    ]
}

fn shares(schemas: &mut Schemas) -> Vec<Call> {
    vec![
        get("/shares", SHARES, Permission::Operates, "Links, newest first, without their secrets")
            .pages()
            .gives(200, schemas.page_of::<Share>())
            .fails(400, &["request.invalid_query"]),
        post(
            "/shares",
            SHARES,
            Permission::Operates,
            "Creates a link that grants read access to one campaign or one run",
        )
        .creates()
        .takes(schemas.of::<CreateShare>())
        .gives(201, schemas.of::<ShareCreated>())
        .fails(400, &["share.invalid"])
        .fails(404, &["campaign.not_found", "run.not_found"]),
        post("/shares/{id}/revoke", SHARES, Permission::Operates, "Ends a link")
            .gives(200, schemas.of::<Share>())
            .fails(404, &["share.not_found"]),
    ]
}
