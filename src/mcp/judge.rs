//! Judging programs for a coding agent, as `nightshift verify` does.

use std::io::Write as _;

use async_trait::async_trait;
use nightshift_mcp::ToolError;
use nightshift_mcp::ports::{Judge, Judged, VerifyRequest};
use nightshift_protocol::baseline::{BaselineKind, FastestBaseline};
use nightshift_protocol::task::CandidateForm;
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::WorkerConfig;
use tokio_util::sync::CancellationToken;

use crate::args::{ModelUse, Verify};
use crate::compose::mcp_tasks::tool_error;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::verify::{Verified, judge_programs, reference_ns};

/// The code of a step that was cancelled.
const CANCELLED: &str = "step.cancelled";

/// Judges in this process.
pub(crate) struct LocalJudge {
    config: WorkerConfig,
    allow_unsandboxed: bool,
    output: Output,
}

impl LocalJudge {
    pub(crate) fn new(config: WorkerConfig, allow_unsandboxed: bool, output: Output) -> Self {
        Self { config, allow_unsandboxed, output }
    }
}

#[async_trait]
impl Judge for LocalJudge {
    async fn judge(&self, request: VerifyRequest, cancel: CancellationToken) -> std::result::Result<Judged, ToolError> {
        let flag = CancelFlag::default();
        let (stop, wish) = (flag.clone(), cancel.clone());
        let watching = tokio::spawn(async move {
            wish.cancelled().await;
            stop.cancel();
        });
        let (mut config, output, allow_unsandboxed) = (self.config.clone(), self.output, self.allow_unsandboxed);
        config.profilers = request.profile;
        let work = move || judge(&request, &config, allow_unsandboxed, &flag, output);
        let judged = tokio::task::spawn_blocking(work).await;
        watching.abort();
        let judged = judged
            .map_err(|error| ToolError::new("internal.verify", format!("judging broke down: {error}")))?
            .map_err(tool_error);
        let was_cut = match &judged {
            Ok(judged) => judged.result.as_ref().is_err_and(|failure| failure.code == CANCELLED),
            Err(_) => true,
        };
        if cancel.is_cancelled() && was_cut {
            return Err(ToolError::new("verification.cancelled", "cancelled before it was judged"));
        }
        judged
    }
}

fn judge(
    request: &VerifyRequest,
    config: &WorkerConfig,
    allow_unsandboxed: bool,
    cancel: &CancelFlag,
    output: Output,
) -> Result<Judged> {
    let suffix = if request.form == CandidateForm::Torch { ".py" } else { ".cu" };
    let failed = |error: std::io::Error| {
        Failure::new("worker.disk", format!("the program cannot be written to a file: {error}"))
    };
    let mut file = tempfile::Builder::new().prefix("candidate").suffix(suffix).tempfile().map_err(failed)?;
    file.write_all(request.source.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
    let args = Verify {
        programs: vec![file.path().to_path_buf()],
        policy: request.policy,
        baselines: if request.baselines { vec![BaselineKind::MEASURED.to_vec()] } else { Vec::new() },
        shape: request.shape.clone(),
        profile: request.profile,
        allow_unsandboxed,
        ..verify_args(&request.task)
    };
    let mut verified = judge_programs(&args, config, cancel, output)?;
    let fastest = fastest(&verified);
    let Some(judged) = verified.programs.pop() else {
        return Err(Failure::new(CANCELLED, "cancelled before it was judged"));
    };
    Ok(Judged {
        task: verified.bundle.spec.name,
        against: verified.bundle.spec.reference,
        precision: verified.bundle.spec.precision,
        machine: verified.machine,
        baselines: verified.baselines,
        fastest,
        unexamined: verified.unexamined,
        result: judged.result.map(Box::new),
    })
}

fn fastest(verified: &Verified) -> Option<FastestBaseline> {
    let baselines = verified.baselines.as_ref()?;
    FastestBaseline::of(reference_ns(baselines, &verified.programs)?, baselines)
}

/// The arguments of `nightshift verify TASK` without options.
pub(super) fn verify_args(task: &str) -> Verify {
    Verify {
        task: task.to_owned(),
        programs: Vec::new(),
        against: None,
        baselines: Vec::new(),
        policy: None,
        shape: None,
        profile: false,
        allow_unsandboxed: false,
        model_use: ModelUse::default(),
    }
}
