//! `nightshift verify`: judges programs of one task in this process.

mod report;

use nightshift_protocol::error::ExitCode;

use self::report::Report;
use crate::args::Verify;
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::verify::judge_programs;

pub(super) async fn run(context: &Context, args: Verify) -> Result<ExitCode> {
    let output = context.output;
    let mut config = compose::worker_config(context, "", None, true, None)?;
    config.profilers = args.profile;
    let cancel = context.cancel_on_interrupt();
    let (stopped, count) = (cancel.clone(), args.programs.len());
    let judge = move || judge_programs(&args, &config, &cancel, output).map(Report::new);
    let report = tokio::task::spawn_blocking(judge)
        .await
        .map_err(|error| Failure::new("internal.verify", format!("judging broke down: {error}")))?;
    // Where a signal kept programs from being judged, it is the reason for everything that failed.
    let report = match report {
        Ok(report) if report.is_complete(count) || !stopped.is_cancelled() => report,
        Err(failure) if !stopped.is_cancelled() => return Err(failure),
        _ => return Err(Failure::new(INTERRUPTED, "stopped before every program was judged")),
    };
    report.write(output)?;
    Ok(report.exit_code())
}
