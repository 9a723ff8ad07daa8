//! Short ids in addresses, as commands accept them.

use axum::response::{IntoResponse as _, Redirect, Response};

use crate::visitor::Visitor;

/// The kind of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A campaign.
    Campaign,
    /// A run.
    Run,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Campaign => "/campaigns/",
            Self::Run => "/runs/",
        }
    }
}

/// Redirects to the page with the full id when `id` is a part of exactly one id. Returns `None` for a full or unknown id.
pub(crate) async fn redirect(visitor: &Visitor, kind: Kind, id: &str) -> Option<Response> {
    let is_whole = match kind {
        Kind::Campaign => id.parse::<nightshift_protocol::id::CampaignId>().is_ok(),
        Kind::Run => id.parse::<nightshift_protocol::id::RunId>().is_ok(),
    };
    if is_whole {
        return None;
    }
    let found = visitor.client.find_ids(id).await.ok()?;
    let found: Vec<String> = match kind {
        Kind::Campaign => found.campaigns.iter().map(ToString::to_string).collect(),
        Kind::Run => found.runs.iter().map(ToString::to_string).collect(),
    };
    let [whole] = found.as_slice() else { return None };
    let address = lengthened(&visitor.address, kind, id, whole)?;
    Some(Redirect::to(&address).into_response())
}

/// Returns the address with the full id.
fn lengthened(address: &str, kind: Kind, id: &str, whole: &str) -> Option<String> {
    let rest = address.strip_prefix(kind.prefix())?.strip_prefix(id)?;
    let goes_on = rest.is_empty() || rest.starts_with(['/', '?']);
    goes_on.then(|| format!("{}{whole}{rest}", kind.prefix()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_address_stays_as_it_is() {
        let longer = |address: &str| lengthened(address, Kind::Run, "ab12", "run_0ab12");
        assert_eq!(longer("/runs/ab12").as_deref(), Some("/runs/run_0ab12"));
        assert_eq!(
            longer("/runs/ab12/attempts/3?diff=parent").as_deref(),
            Some("/runs/run_0ab12/attempts/3?diff=parent")
        );
        assert_eq!(longer("/runs/ab123"), None);
        assert_eq!(longer("/campaigns/ab12"), None);
    }
}
