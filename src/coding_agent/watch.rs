//! Many sessions: agents are started for runs whose turn waits, as many at once as are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use nightshift_protocol::campaign::EXTERNAL;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;

use super::Site;
use super::collect::remove_ended;
use super::session::{END_GRACE, LOOK_EVERY, Worked, is_turn, work_on};
use crate::failure::{Failure, Result};
use crate::follow::{Followed, Until};
use crate::resolve::Target;

/// The strategy of agent sessions.
const STRATEGY: &str = "agent";
/// Requests that are read at once.
const PER_CALL: u32 = 500;

/// Pause before a session is tried again that another process of this machine works on.
const ELSEWHERE_PAUSE: Duration = Duration::from_secs(10);

/// Pause before the session of an agent that took no turn is tried again, when every session is worked on.
const GIVEN_UP_PAUSE: Duration = Duration::from_mins(30);

/// Runs that no agent is started for: each until a moment, or while its session is worked on.
type Taken = BTreeMap<RunId, Option<Instant>>;

/// What was found to do.
enum Found {
    /// A session whose turn waits.
    Session(RunId),
    /// Nothing that is watched is open any more.
    Over,
}

/// Has agents work on the sessions of a campaign or run until they are over, or on every session without an end.
///
/// A session whose agent takes no turn is left open. With `of`, returns the first such error when the other sessions are over.
/// Without it, tries the session again after `GIVEN_UP_PAUSE`.
pub(crate) async fn work(site: &Site<'_>, of: Option<&Target>, model: Option<&str>) -> Result<()> {
    remove_ended(site).await;
    if let Some(target) = of {
        check(site, target).await?;
        if is_over(site, target, &BTreeSet::new()).await? {
            site.context.output.note(&format!("{target} is over: no session of it is open"));
            return Ok(());
        }
    }
    let mut working = FuturesUnordered::new();
    let (mut taken, mut left, mut told) = (Taken::new(), BTreeSet::new(), BTreeSet::new());
    let (mut over, mut failure): (bool, Option<Failure>) = (false, None);
    while !(over && working.is_empty()) {
        tokio::select! {
            found = find(site, of, model, &taken, &left), if !over && working.len() < site.at_once => match found? {
                Found::Over => over = true,
                Found::Session(run) => {
                    taken.insert(run.clone(), None);
                    working.push(async move {
                        let worked = work_on(site, &run).await;
                        if matches!(worked, Ok(Worked::Elsewhere)) {
                            tokio::time::sleep(ELSEWHERE_PAUSE).await;
                        }
                        (worked, run)
                    });
                }
            },
            Some((worked, run)) = working.next(), if !working.is_empty() => match worked {
                // A run that is retried or resumed may need its agent again.
                Ok(worked) => {
                    taken.remove(&run);
                    if worked == Worked::Elsewhere && told.insert(run.clone()) {
                        site.context.output.note(&format!("{}  another process works on it", run.short()));
                    }
                }
                // Every other session would meet the same.
                Err(error) if error.error.code == "agent.not_started" => return Err(error),
                Err(error) => {
                    site.context.output.note(&format!("{}  {error}", run.short()));
                    taken.insert(run.clone(), of.is_none().then(|| Instant::now() + GIVEN_UP_PAUSE));
                    left.insert(run);
                    failure.get_or_insert(error);
                }
            },
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Has agents work on the sessions of a campaign while it is followed.
pub(crate) async fn work_during(
    site: &Site<'_>,
    campaign: CampaignId,
    following: impl Future<Output = Result<Followed>>,
) -> Result<Followed> {
    let target = Target::Campaign(campaign);
    let mut working = Box::pin(work(site, Some(&target), None));
    let mut following = std::pin::pin!(following);
    let followed = tokio::select! {
        followed = &mut following => followed?,
        worked = &mut working => {
            worked?;
            return following.await;
        }
    };
    if followed.until == Until::Ended {
        // An agent that is told so ends by itself, and its workspace is removed. What goes wrong now changes no result.
        let worked = tokio::select! {
            worked = tokio::time::timeout(END_GRACE + Duration::from_secs(5), working) => worked.unwrap_or(Ok(())),
            () = site.context.interrupt.cancelled() => Ok(()),
        };
        if let Err(error) = worked {
            site.context.output.note(&format!("after the end of the session: {error}"));
        }
    }
    Ok(followed)
}

/// Refuses what has no agent session.
async fn check(site: &Site<'_>, target: &Target) -> Result<()> {
    let campaign = match target {
        Target::Campaign(id) => id.clone(),
        Target::Run(id) => site.server.call(async |client| client.run(id).await).await?.summary.campaign,
    };
    let strategy = site.server.call(async |client| client.campaign(&campaign).await).await?.spec.strategy;
    if strategy == STRATEGY {
        return Ok(());
    }
    Err(Failure::new("run.no_session", format!("{target} has no agent session: its strategy is `{strategy}`"))
        .hint("`nightshift run TASK --strategy agent --model MODEL --coder-model external` begins one"))
}

/// Waits for a session whose turn waits and that no agent of this process was started for, or for the end of all.
async fn find(
    site: &Site<'_>,
    of: Option<&Target>,
    model: Option<&str>,
    taken: &Taken,
    left: &BTreeSet<RunId>,
) -> Result<Found> {
    let (campaign, run) = match of {
        None => (None, None),
        Some(Target::Campaign(id)) => (Some(id), None),
        Some(Target::Run(id)) => (None, Some(id)),
    };
    loop {
        let open = site.server.call(async |client| client.requests(campaign, run, false, Some(PER_CALL), None).await);
        let open = open.await?;
        let is_external = |name: &str| name.split('/').next() == Some(EXTERNAL);
        // The newest come first, and the oldest waits longest.
        let waiting = open.items.into_iter().rev().filter(|request| {
            let is_meant = model.map_or_else(|| is_external(&request.model), |model| request.model == model);
            is_meant && is_turn(request) && !is_taken(taken, &request.run, Instant::now())
        });
        let mut paused = BTreeMap::new();
        for request in waiting {
            if !paused.contains_key(&request.run) {
                let runs = site.server.call(async |client| client.campaign(&request.campaign).await).await?.runs;
                paused.extend(runs.into_iter().map(|run| (run.id, run.status == RunStatus::Paused)));
            }
            if paused.get(&request.run) != Some(&true) {
                return Ok(Found::Session(request.run));
            }
        }
        if let Some(target) = of
            && is_over(site, target, left).await?
        {
            return Ok(Found::Over);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_taken(taken: &Taken, run: &RunId, now: Instant) -> bool {
    taken.get(run).is_some_and(|until| until.is_none_or(|until| now < until))
}

/// Returns whether every run is over, or left to other agents.
async fn is_over(site: &Site<'_>, target: &Target, left: &BTreeSet<RunId>) -> Result<bool> {
    let runs = match target {
        Target::Run(id) => vec![site.server.call(async |client| client.run(id).await).await?.summary],
        Target::Campaign(id) => site.server.call(async |client| client.campaign(id).await).await?.runs,
    };
    Ok(runs.iter().all(|run| run.status.is_final() || left.contains(&run.id)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_given_up_is_free_again_after_a_pause() {
        let (run, now): (RunId, _) = (format!("run_{:032x}", 1).parse().unwrap(), Instant::now());
        let mut taken = Taken::from([(run.clone(), None)]);
        assert!(is_taken(&taken, &run, now + GIVEN_UP_PAUSE), "it is worked on");
        taken.insert(run.clone(), Some(now + GIVEN_UP_PAUSE));
        assert!(is_taken(&taken, &run, now));
        assert!(!is_taken(&taken, &run, now + GIVEN_UP_PAUSE));
    }
}
