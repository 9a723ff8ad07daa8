//! Permissions of share links: one campaign or one run, and the artifacts that it references. Every route that is not
//! listed here is refused, including future routes.

use axum::extract::Query;
use axum::http::{Method, Uri};
use nightshift_engine::store::{Store, StoreError};
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{Share, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId};

use super::Access;
use super::keys::wrong_token;
use crate::caller::Caller;
use crate::error::ApiFailure;
use crate::rate_limits::Peer;
use crate::secret::{is_well_formed_secret, new_secret_of};

/// Prefix of the secret of a share link.
const SHARE_PREFIX: &str = "nsh_";

/// Routes about the object whose id is in the path.
const ABOUT_ONE: [&str; 10] = [
    "/api/v1/campaigns/{id}",
    "/api/v1/campaigns/{id}/results",
    "/api/v1/runs/{id}",
    "/api/v1/runs/{id}/steps",
    "/api/v1/runs/{id}/scores",
    "/api/v1/runs/{id}/retrievals",
    "/api/v1/runs/{id}/events",
    "/api/v1/attempts/at/{run}/{number}/model-new",
    "/api/v1/attempts/at/{run}/{number}/project",
    "/api/v1/artifacts/{hash}",
];
/// List routes, each with parameters of which one must name the object.
const LISTS: [(&str, &[&str]); 8] = [
    ("/api/v1/runs", &["campaign"]),
    ("/api/v1/live", &["campaign", "run"]),
    ("/api/v1/attempts", &["campaign", "run"]),
    ("/api/v1/attempts/points", &["campaign", "run"]),
    ("/api/v1/tables/runs", &["campaign"]),
    ("/api/v1/tables/attempts", &["campaign", "run"]),
    ("/api/v1/tables/steps", &["run"]),
    ("/api/v1/tables/events", &["run"]),
];
/// Number of digits of an id.
const ID_DIGITS: usize = 32;

/// Creates a new secret for a share link.
pub(crate) fn new_share_secret(random: &dyn nightshift_engine::clock::Random) -> String {
    new_secret_of(random, SHARE_PREFIX)
}

impl Access {
    /// Returns whether this is the secret of a share link.
    pub(super) fn is_of_link(secret: &[u8]) -> bool {
        std::str::from_utf8(secret).is_ok_and(|secret| is_well_formed_secret(secret, SHARE_PREFIX))
    }

    /// Returns the share link of this secret.
    pub(super) async fn link(&self, secret: &[u8], peer: Option<Peer>) -> Result<Share, ApiFailure> {
        let hash = blake3::hash(secret);
        let share = if let Some(cached) = self.cached(&self.keys.links, &hash, peer)? {
            cached.found
        } else {
            let share = self.shared.store.team.find_share(hash.to_hex().as_str()).await?;
            self.keys.links.keep(hash, share.clone());
            share
        };
        share.ok_or_else(wrong_token)
    }

    /// Returns the caller of this share link, if it is still valid.
    pub(super) fn examine_link(&self, share: Share) -> Result<Caller, ApiFailure> {
        if share.revoked_at.is_some() {
            return Err(ApiFailure::unauthorized(
                "token.revoked",
                "this link was revoked: ask its sender for a new one",
            ));
        }
        if share.expires_at <= self.shared.clock.now() {
            return Err(ApiFailure::unauthorized(
                "token.expired",
                "this link has expired: ask its sender for a new one",
            ));
        }
        let name = if share.label.is_empty() { share.id.to_string() } else { share.label };
        let caller = Caller::new(&name, Role::Viewer);
        Ok(Caller { limited_to: Some(share.target), ends_at: Some(share.expires_at), ..caller })
    }
}

/// Refuses requests that a share link does not permit.
pub(super) async fn examine(
    store: &Store,
    target: &Target,
    method: &Method,
    route: &str,
    uri: &Uri,
) -> Result<(), ApiFailure> {
    let is_reading = matches!(*method, Method::GET | Method::HEAD);
    // An encoded path is decoded by its handler but not here, so it is refused.
    let is_plain = !uri.path().contains('%');
    if is_reading && is_plain && is_listed(route, uri) {
        let Ids { campaigns, runs } = Ids::of(uri);
        let artifact = artifact_of(route, uri);
        if leads_to(store, target, &campaigns, &runs, artifact.as_ref()).await? {
            return Ok(());
        }
    }
    Err(ApiFailure::forbidden("access.link_limited", format!("this link permits only reading {target}")))
}

/// Returns whether a share link permits this route at all.
fn is_listed(route: &str, uri: &Uri) -> bool {
    if ABOUT_ONE.contains(&route) {
        return true;
    }
    let Some((_, parameters)) = LISTS.iter().find(|(list, _)| *list == route) else { return false };
    let pairs = pairs(uri);
    let mut named = pairs.iter().filter(|(name, _)| parameters.contains(&name.as_str())).peekable();
    // All of the parameters, because the handler decides which of several counts.
    named.peek().is_some()
        && named.all(|(_, value)| value.parse::<CampaignId>().is_ok() || value.parse::<RunId>().is_ok())
}

async fn leads_to(
    store: &Store,
    target: &Target,
    campaigns: &[CampaignId],
    runs: &[RunId],
    artifact: Option<&ArtifactHash>,
) -> Result<bool, ApiFailure> {
    if let Some(hash) = artifact {
        return match store.team.names_artifact(target, hash).await {
            Ok(names) => Ok(names && campaigns.is_empty() && runs.is_empty()),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
    // The address must name an object, and every named object must be permitted.
    if campaigns.is_empty() && runs.is_empty() {
        return Ok(false);
    }
    match target {
        Target::Campaign(only) => {
            if campaigns.iter().any(|campaign| campaign != only) {
                return Ok(false);
            }
            if runs.is_empty() {
                return Ok(true);
            }
            let marks = store.watch.run_marks(runs).await?;
            Ok(runs.iter().all(|run| marks.iter().any(|mark| mark.run == *run && mark.campaign == *only)))
        }
        Target::Run(only) | Target::Attempt(only, _) => Ok(campaigns.is_empty() && runs.iter().all(|run| run == only)),
    }
}

/// All ids in an address.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ids {
    campaigns: Vec<CampaignId>,
    runs: Vec<RunId>,
}

impl Ids {
    fn of(uri: &Uri) -> Self {
        let mut ids = Self::default();
        ids.add_all(uri.path());
        for (name, value) in pairs(uri) {
            ids.add_all(&name);
            ids.add_all(&value);
        }
        ids
    }

    fn add_all(&mut self, text: &str) {
        for (at, _) in text.match_indices("cmp_") {
            let id = text.get(at..at + CampaignId::PREFIX.len() + ID_DIGITS);
            self.campaigns.extend(id.and_then(|id| id.parse().ok()));
        }
        for (at, _) in text.match_indices("run_") {
            let id = text.get(at..at + RunId::PREFIX.len() + ID_DIGITS);
            self.runs.extend(id.and_then(|id| id.parse().ok()));
        }
        self.runs.dedup();
    }
}

/// Returns the decoded query.
fn pairs(uri: &Uri) -> Vec<(String, String)> {
    Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default()
}

fn artifact_of(route: &str, uri: &Uri) -> Option<ArtifactHash> {
    if route != "/api/v1/artifacts/{hash}" {
        return None;
    }
    uri.path().rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "fedcba9876543210fedcba9876543210";

    fn ids(address: &str) -> (usize, usize) {
        let ids = Ids::of(&address.parse().unwrap_or_default());
        (ids.campaigns.len(), ids.runs.len())
    }

    #[test]
    fn every_id_of_an_address_is_found_wherever_it_stands() {
        assert_eq!(ids(&format!("/runs/run_{ONE}")), (0, 1));
        assert_eq!(ids(&format!("/runs/run_{ONE}?against=run_{TWO}/3")), (0, 2));
        assert_eq!(ids(&format!("/api/v1/runs?campaign=%63mp%5F{ONE}")), (1, 0), "however it is written");
        assert_eq!(ids(&format!("/x?run_{ONE}=a,cmp_{TWO},cmp_{ONE}")), (2, 1));
        assert_eq!(ids("/x?q=run_"), (0, 0));
    }

    #[test]
    fn a_list_has_to_say_what_it_is_about() {
        let listed = |address: &str| {
            let uri: Uri = address.parse().unwrap_or_default();
            is_listed(uri.path(), &uri)
        };
        assert!(listed(&format!("/api/v1/runs?campaign=cmp_{ONE}")));
        assert!(listed(&format!("/api/v1/live?run=run_{ONE}")));
        for address in [
            "/api/v1/runs".to_owned(),
            format!("/api/v1/runs?before=run_{ONE}"),
            "/api/v1/runs?campaign=".to_owned(),
            format!("/api/v1/attempts?campaign=cmp_{ONE}&campaign="),
            "/api/v1/live".to_owned(),
            format!("/api/v1/live?after=cmp_{ONE}"),
            "/api/v1/campaigns".to_owned(),
            format!("/api/v1/search?campaign=cmp_{ONE}"),
            "/api/v1/tokens".to_owned(),
            String::new(),
        ] {
            assert!(!listed(&address), "{address}");
        }
    }
}
