//! Tags.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use nightshift_engine::store::{Among, PageRequest};
use nightshift_protocol::api::{ChangeTags, MAX_TAG_CHARS, MAX_TAGS, Page, Tag, TagCount};

use super::{AmongQuery, examine_target, page};
use crate::api::list::{PageQuery, derived_cursor};
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::extract::{Body, Params};
use crate::shared::Shared;

/// Maximum number of different tags in a list.
const MAX_NAMES: u32 = 500;

/// Lists tags with their targets, newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<AmongQuery>,
) -> Result<Json<Page<Tag>>, ApiFailure> {
    let (among, request) = query.split()?;
    let rows = shared.store.team.list_tags(&among, &request).await?;
    Ok(Json(page(&request, rows)))
}

/// Lists the existing tags, the most used first.
pub(crate) async fn names(
    State(shared): State<Arc<Shared>>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<TagCount>>, ApiFailure> {
    let names = shared.store.team.tag_names(MAX_NAMES).await?;
    let items = names.into_iter().map(|(tag, targets)| TagCount { tag, targets }).collect();
    Ok(Json(query.of_moving(items, |name: &TagCount| derived_cursor(&[&name.tag]))?))
}

/// Adds and removes tags. Returns the target's tags.
pub(crate) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Body(wish): Body<ChangeTags>,
) -> Result<Json<Page<Tag>>, ApiFailure> {
    if wish.add.len() > MAX_TAGS || wish.remove.len() > MAX_TAGS {
        return Err(ApiFailure::bad("request.invalid", format!("one call changes at most {MAX_TAGS} tags")));
    }
    wish.add.iter().try_for_each(|tag| examine(tag))?;
    examine_target(&shared, &wish.target).await?;
    let store = &shared.store.team;
    // Checked even if tags are only removed: a missing target has none.
    store.campaign_of(&wish.target).await?;
    let at = shared.clock.now();
    let tag = |tag: String| Tag { target: wish.target.clone(), tag, author: caller.name.clone(), at };
    let add = wish.add.into_iter().map(tag).collect();
    let remove = wish.remove.into_iter().map(|tag| (wish.target.clone(), tag)).collect();
    let most = u32::try_from(MAX_TAGS).unwrap_or(u32::MAX);
    let result = store.change_tags(add, remove, most).await;
    shared.store_health.note_error(&result);
    result?;
    let among = Among { target: Some(wish.target), ..Among::default() };
    let request = PageRequest { limit: most + 1, before: None };
    Ok(Json(page(&request, store.list_tags(&among, &request).await?)))
}

fn examine(tag: &str) -> Result<(), ApiFailure> {
    let chars = tag.chars().count();
    if !(1..=MAX_TAG_CHARS).contains(&chars) || tag.trim() != tag || tag.chars().any(|c| c.is_control() || c == ',') {
        return Err(ApiFailure::bad(
            "tag.invalid",
            format!("a tag has 1 to {MAX_TAG_CHARS} characters, no comma, no control characters, no blanks around it"),
        ));
    }
    Ok(())
}
