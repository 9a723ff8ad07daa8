//! `nightshift handover run`: carries out the device steps of a hand-over with an embedded server and its own database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nightshift_client::Client;
use nightshift_engine::clock::Clock as _;
use nightshift_engine::store::{
    ArchiveStore as _, CampaignArchive, CampaignStore as _, Database as _, OwnershipStore as _, StoreError,
    StoreGauges, store_unpacked,
};
use nightshift_optimizer::strategy::STATE_FORMAT;
use nightshift_protocol::api::{CampaignDetail, ControlAction};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::handover::{Direction, HandoverError, UnpackedHandover};
use nightshift_protocol::machine::{Executor, Needs};
use nightshift_protocol::run::RunStatus;
use nightshift_server::SystemClock;
use nightshift_store::SqlStore;
use tokio::time::Instant;

use super::result::{self, Until};
use super::{earlier, off_the_runtime};
use crate::archive_file;
use crate::args::HandoverRun;
use crate::command::run::OWN_ADDRESS;
use crate::compose::{self, Local, Start};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::follow::{LOOK_PAUSE, Stuck};
use crate::handover_file;
use crate::progress::Progress;

/// Where the databases of hand-overs are, below the data folder.
const FOLDERS: &str = "handovers";
/// Looks in a row at which nothing moves before everything counts as waiting for agents.
const QUIET_LOOKS: u32 = 3;

pub(super) async fn run(context: &Context, args: HandoverRun) -> Result<ExitCode> {
    let until = args.limit_ms.map(|limit_ms| Instant::now() + Duration::from_millis(limit_ms));
    let file = args.file.clone();
    let out = args.out.clone();
    let (handover, key) = off_the_runtime(move || {
        let (handover, key) = examined(&file)?;
        refuse_other_file(&file, &out, &handover)?;
        Ok((handover, key))
    })
    .await?;
    let folder = context.config().data_dir.join(FOLDERS).join(handover.header.handover.as_str());
    let start = Start { agents: false, data_dir: Some(folder.clone()), ..Start::driving(OWN_ADDRESS) };
    let local = compose::start(context, start).await?;
    let done = tokio::select! {
        done = carry_out(context, &local, &args, (&handover, &folder), until) => done,
        failure = local.failed() => Err(failure),
    };
    let written = match done {
        Ok((until, detail)) => {
            let written = result::write(&local, &args.out, handover, key).await;
            written.and_then(|written| result::report(context, &args.out, &written, until, &detail).map(|()| until))
        }
        Err(failure) => Err(failure),
    };
    let closed = local.shutdown().await;
    let until = written?;
    closed?;
    Ok(if until == Until::Interrupted { ExitCode::Interrupted } else { ExitCode::Ok })
}

/// A file on its way out that is whole and was not changed, and its key.
fn examined(file: &Path) -> Result<(UnpackedHandover, String)> {
    let handover = handover_file::read(file, |_| Ok(()))?;
    handover.header.examine(Direction::Out, STATE_FORMAT)?;
    let key = handover.header.key.clone().ok_or(HandoverError::Tampered)?;
    handover.authenticate(&key)?;
    Ok((handover, key))
}

/// Refuses a place for the result before anything is carried out for it: one that cannot be written, or that has another
/// file than an earlier result of this hand-over.
fn refuse_other_file(file: &Path, out: &Path, handover: &UnpackedHandover) -> Result<()> {
    let taken = || {
        Failure::new("usage.file_exists", format!("`{}` exists, and is no result of this hand-over", out.display()))
            .hint("name another file with --out")
    };
    let part = archive_file::part_of(out);
    if file.canonicalize().ok() == part.canonicalize().ok() {
        return Err(taken());
    }
    if out.exists() {
        let header = handover_file::read(out, |_| Ok(())).map_err(|_| taken())?.header;
        if header.direction != Direction::Back || header.handover != handover.header.handover {
            return Err(taken());
        }
    }
    drop(archive_file::create(&part)?);
    std::fs::remove_file(&part).map_err(|error| archive_file::not_written(&part, &error))
}

/// Carries steps out, and brings the campaign to rest.
async fn carry_out(
    context: &Context,
    local: &Local,
    args: &HandoverRun,
    (handover, folder): (&UnpackedHandover, &Path),
    until: Option<Instant>,
) -> Result<(Until, CampaignDetail)> {
    let header = &handover.header;
    let client = local.client()?;
    let output = context.output;
    match local.store().load_campaign(&header.campaign).await {
        Ok(_) => output.note(&format!("going on with {} in {}", header.handover, folder.display())),
        Err(StoreError::NotFound { .. }) => {
            take_in(local.store(), args.file.clone(), handover, folder).await?;
            output.note(&format!("{} of {} is kept in {}", header.handover, header.server, folder.display()));
        }
        Err(error) => return Err(error.into()),
    }
    release(&client, handover).await?;
    output.note(&format!("pages: {}/campaigns/{}", local.address(), header.campaign));
    let reason = follow(context, local, &client, handover, until).await?;
    rest(&client, handover).await?;
    Ok((reason, client.campaign(&header.campaign).await?))
}

/// Stores the campaign with its artifacts. It is there as a whole or not at all.
async fn take_in(store: &Arc<SqlStore>, file: PathBuf, handover: &UnpackedHandover, folder: &Path) -> Result<()> {
    let header = &handover.header;
    earlier::bring(store.as_ref(), folder, &header.left_out).await?;
    let (kept, runtime) = (Arc::clone(store), tokio::runtime::Handle::current());
    let stored = off_the_runtime(move || {
        handover_file::read(&file, |artifact| {
            Ok(runtime.block_on(store_unpacked(&*kept, &artifact, SystemClock.now()))?)
        })
    })
    .await?;
    if stored != *handover {
        return Err(HandoverError::Tampered.into());
    }
    let mut artifacts = stored.archive.artifacts;
    artifacts.extend(header.left_out.iter().cloned());
    store.import_campaign(CampaignArchive { rows: stored.archive.rows, artifacts }, SystemClock.now()).await?;
    Ok(())
}

/// Has the runs go on that the hand-over is about.
async fn release(client: &Client, handover: &UnpackedHandover) -> Result<()> {
    let header = &handover.header;
    // An earlier call brought it to rest.
    match client.cancel_handover(&header.campaign).await {
        Ok(_) => {}
        Err(error) if error.code() == "handover.none" => {}
        Err(error) => return Err(error.into()),
    }
    for run in &header.runs {
        if client.run(run).await?.summary.status == RunStatus::Paused {
            client.control_run(run, ControlAction::Resume).await?;
        }
    }
    Ok(())
}

/// Shows progress until nothing is left to do here.
async fn follow(
    context: &Context,
    local: &Local,
    client: &Client,
    handover: &UnpackedHandover,
    until: Option<Instant>,
) -> Result<Until> {
    let mut progress = Progress::new(context.output);
    let mut stuck = Stuck::default();
    let mut quiet_looks = 0;
    let reason = loop {
        let runs = client.campaign(&handover.header.campaign).await?.runs;
        stuck.look(client, &runs).await;
        progress.show(&runs, &stuck.waits);
        if runs.iter().all(|run| run.status.is_final()) {
            break Until::Ended;
        }
        quiet_looks = if is_quiet(local.store()).await? { quiet_looks + 1 } else { 0 };
        if quiet_looks >= QUIET_LOOKS {
            break Until::Waits;
        }
        if context.interrupt.is_cancelled() {
            break Until::Interrupted;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            break Until::TimeOver;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            () = context.interrupt.cancelled() => {}
        }
    };
    progress.finish();
    Ok(reason)
}

/// Returns whether no step can run here and no decision is open. A step that was in flight at the first check leads to a
/// decision at the second one, and the third one sees the steps of that decision.
async fn is_quiet(store: &SqlStore) -> Result<bool> {
    Ok(is_idle(&store.gauges().await?) && store.runs_to_drive(1).await?.is_empty() && is_idle(&store.gauges().await?))
}

fn is_idle(gauges: &StoreGauges) -> bool {
    let is_of_agents = |route: &str| Needs::parse_route(route).is_ok_and(|needs| needs.executor == Executor::Agent);
    gauges.leases == 0 && gauges.timers == 0 && gauges.ready.iter().all(|(route, _)| is_of_agents(route))
}

/// Maximum time that a cancelled run may take to end.
const MAX_ENDING: Duration = Duration::from_secs(30);

/// Brings the campaign to rest: steps in flight are given back.
async fn rest(client: &Client, handover: &UnpackedHandover) -> Result<()> {
    let until = Instant::now() + MAX_ENDING;
    loop {
        match client.begin_handover(&handover.header.campaign, 0).await {
            Ok(_) => return Ok(()),
            // Every run is over: nothing moves any more.
            Err(error) if error.code() == "handover.nothing_left" => return Ok(()),
            Err(error) if error.code() == "handover.cancelling" && Instant::now() < until => {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            Err(error) => return Err(Failure::from(error)),
        }
    }
}
