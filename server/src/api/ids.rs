//! `GET /ids/{text}`: finds ids from typed text.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::IdMatches;

use crate::error::ApiFailure;
use crate::extract::TextPath;
use crate::shared::Shared;

/// Maximum number of campaigns and of runs in an answer.
pub const MAX_ID_MATCHES: u32 = 20;
/// Maximum length of the text: a whole id with its prefix has 36 characters.
const MAX_TEXT_CHARS: usize = 36;

/// Returns campaigns and runs that the text may refer to.
pub(crate) async fn find(
    State(shared): State<Arc<Shared>>,
    TextPath(text): TextPath,
) -> Result<Json<IdMatches>, ApiFailure> {
    let text = text.to_ascii_lowercase();
    if text.is_empty()
        || text.len() > MAX_TEXT_CHARS
        || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Err(ApiFailure::bad("request.invalid_id", "an id holds only letters, digits and `_`, at most 36"));
    }
    let (campaigns, runs) = shared.store.campaigns.find_ids(&text, MAX_ID_MATCHES).await?;
    Ok(Json(IdMatches { campaigns, runs }))
}
