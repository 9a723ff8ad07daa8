//! Whether a full store is slower than an empty one: the first tenth of the steps against the last one.

use std::sync::Arc;
use std::time::Instant;

use nightshift_protocol::machine::Needs;
use serde::Serialize;

use crate::figure::print;
use crate::place::Place;
use crate::setup::{AddOne, Settings, start};
use crate::trivial::{STEPS_PER_WORKFLOW, Trivial};
use crate::workload::Loop;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Steps; the target is about 1000000
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    steps: u64,
    /// Workflows in flight at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    in_flight: u32,
}

#[derive(Debug, Serialize)]
struct MillionFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    in_flight: u32,
    steps: u64,
    seconds: f64,
    /// Steps per second of each tenth.
    tenths: Vec<f64>,
    /// How much slower the last tenth was than the first, in percent; negative when it was faster.
    loss_percent: f64,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place, steps, in_flight } = options;
    place.prepare().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let workflow = Trivial { steps: STEPS_PER_WORKFLOW, needs: Needs::agent(), decided: None };
    let settings = Settings::new(usize::try_from(in_flight)?, place.is_embedded());
    let server = start(&settings, store.ports(), workflow, Arc::new(AddOne)).await?;
    let mut workflows = Loop::new(store.ports(), None, in_flight, STEPS_PER_WORKFLOW).await?;
    let began = Instant::now();
    let (timing, ends) = workflows.run(steps / STEPS_PER_WORKFLOW).await?;
    drop(workflows);
    server.stop().await?;
    store.close().await?;
    let tenths = tenths(began, &ends);
    let (first, last) = (tenths.first().copied().unwrap_or_default(), tenths.last().copied().unwrap_or_default());
    print(&MillionFigure {
        system: "nightshift-million",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        in_flight,
        steps,
        seconds: timing.whole.as_secs_f64(),
        loss_percent: (1.0 - last / first) * 100.0,
        tenths,
    })
}

/// Steps per second of each tenth of the workflows, in the order in which they ended.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn tenths(began: Instant, ends: &[Instant]) -> Vec<f64> {
    let mut from = began;
    let mut rates = Vec::new();
    for tenth in 1..=10 {
        let (first, after) = (ends.len() * (tenth - 1) / 10, ends.len() * tenth / 10);
        let Some(to) = after.checked_sub(1).and_then(|last| ends.get(last)).copied() else { continue };
        let seconds = to.duration_since(from).as_secs_f64();
        rates.push((after - first) as f64 * STEPS_PER_WORKFLOW as f64 / seconds);
        from = to;
    }
    rates
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tenth_that_takes_twice_as_long_has_half_the_rate() {
        let began = Instant::now();
        let ends: Vec<Instant> = (1..=20_u32)
            .map(|number| {
                began + Duration::from_secs(1) * number.min(18) + Duration::from_secs(2) * number.saturating_sub(18)
            })
            .collect();
        let rates = tenths(began, &ends);
        assert_eq!(rates.len(), 10);
        assert!((rates[0] - 10.0).abs() < 1e-9 && (rates[9] - 5.0).abs() < 1e-9, "{rates:?}");
    }
}
