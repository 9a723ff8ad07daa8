//! What a toy worker does with a step: a few milliseconds of nothing, and a line in its log before and after.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::machine::{DeviceOffer, DeviceUse, Needs, Offers};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::Target;
use nightshift_sandbox::process::CancelFlag;
use nightshift_worker::lease::Work;

use super::log::{Line, Log, What};
use super::values::{output, seed_in, value_of};
use super::workflow::machine;

/// How often work looks whether it is to stop.
const SLICE: Duration = Duration::from_millis(2);

/// The work of a toy worker.
pub(crate) struct ToyWork {
    pub(crate) log: Log,
}

impl Work for ToyWork {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let needs =
            Needs::parse_route(&step.route).map_err(|error| StepFailure::fatal("toy.route", error.to_string()))?;
        let write = |what: What| {
            let line = Line {
                at_us: 0,
                process: 0,
                what,
                run: step.run.to_string(),
                key: step.key.clone(),
                epoch: Some(step.epoch),
                device: step.device,
                exclusive: needs.device == DeviceUse::Exclusive,
                looked_us: None,
            };
            self.log.write(line).map_err(|error| StepFailure::retriable("toy.log", error.to_string()))
        };
        let seed = seed_in(&step.input).ok_or_else(|| StepFailure::fatal("toy.input", "a foreign step"))?;
        let value = value_of(seed);
        write(What::Begin)?;
        let until = Instant::now() + duration(value);
        while Instant::now() < until {
            if cancel.is_cancelled() {
                write(What::Stopped)?;
                return Err(StepFailure::retriable("toy.stopped", "the step was told to stop"));
            }
            std::thread::sleep(SLICE);
        }
        if step.key.ends_with("fails-first") && step.epoch == 1 {
            write(What::Failed)?;
            return Err(StepFailure::fatal("toy.fails_first", "this step fails at its first try, as it was to"));
        }
        if value.is_multiple_of(19) && step.epoch == 1 {
            write(What::Failed)?;
            return Err(StepFailure::retriable("toy.flaky", "this step fails once, as it was to"));
        }
        write(What::Done)?;
        Ok(output(value))
    }
}

/// Most steps are short; some are long enough to be cut off in the middle, and few longer than a lease.
fn duration(value: u64) -> Duration {
    Duration::from_millis(match value % 100 {
        0 => 2_000,
        1..=9 => 150 + value % 150,
        _ => 2 + value % 12,
    })
}

/// What a toy worker offers: three slots, and one device that two may share.
pub(crate) fn offers() -> Offers {
    Offers {
        targets: vec![Target::Cpu],
        cpu_slots: 3,
        devices: vec![DeviceOffer {
            index: 0,
            target: Target::Cpu,
            name: "toy".to_owned(),
            uuid: None,
            compute_capability: None,
            memory_bytes: 1 << 30,
            shared_slots: 2,
            quarantine: None,
        }],
        tools: BTreeSet::new(),
        labels: BTreeSet::new(),
        machine: machine(),
    }
}
