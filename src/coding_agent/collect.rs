//! Folders of sessions that ended while no process of this machine saw it, such as after `kill -9`.

use nightshift_protocol::id::RunId;

use super::Site;
use super::workspace::Workspace;

/// Maximum number of folders that are looked at by a start.
const MAX_LOOKED_AT: usize = 100;
/// The answer for a run that the server does not have, or that belongs to someone else.
const UNKNOWN_RUN: &str = "run.not_found";

/// Removes the folders of sessions that are over. Those that the user asked to keep, those of a process that works, and those
/// of runs that this server does not know stay.
pub(super) async fn remove_ended(site: &Site<'_>) {
    if site.workspaces.is_some() {
        return;
    }
    let root = site.root();
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    let runs = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RunId>().ok());
    for run in runs.take(MAX_LOOKED_AT) {
        let Ok(Some(workspace)) = Workspace::lock(&root, &run) else { continue };
        let detail = match site.server.call(async |client| client.run(&run).await).await {
            Ok(detail) => detail,
            Err(failure) if failure.error.code == UNKNOWN_RUN => continue,
            // Every further call may wait as long as this one. The next start looks again.
            Err(_) => return,
        };
        if detail.summary.status.is_final()
            && let Err(error) = workspace.remove()
        {
            site.context.output.note(&format!("{}  its folder stays: {error}", run.short()));
        }
    }
}
