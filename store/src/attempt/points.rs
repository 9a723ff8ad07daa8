//! Attempts as points of a chart.

use nightshift_protocol::api::{AttemptPoint, AttemptPoints, MAX_POINTS, PointValue, PointsQuery};
use nightshift_protocol::time::TimestampMs;

use super::columns::{ABSENT, Columns, Slot};
use super::tagged::Tagged;
use super::wanted::ResolvedFilter;

pub(crate) fn pack(columns: &Columns, query: &PointsQuery, tagged: Option<Tagged>) -> AttemptPoints {
    let wanted = ResolvedFilter::with_tag(&query.filter, tagged, columns);
    let mut points: Vec<AttemptPoint> = Vec::new();
    let mut total = 0;
    wanted.scan(columns, |run_id, _, slot, misses| {
        if !misses.none() {
            return;
        }
        total += 1;
        // Larger keys do not fit into a point.
        if let Ok(run_key) = u32::try_from(run_id) {
            points.push(AttemptPoint {
                run_key,
                number: u16::try_from(slot.number).unwrap_or(u16::MAX),
                created_at: TimestampMs(slot.created_ms),
                value: value(slot, query.value),
                outcome: slot.outcome,
                stage: slot.stage,
                confirmed: slot.is_confirmed,
                best: slot.is_best,
            });
        }
    });
    points.sort_unstable_by_key(|point| (point.created_at, point.run_key, point.number));
    let surplus = points.len().saturating_sub(MAX_POINTS);
    AttemptPoints::pack(total, &points[surplus..])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a point is drawn, not computed with")]
fn value(slot: &Slot, of: PointValue) -> Option<f32> {
    let (number, unit) = match of {
        PointValue::Speedup => (slot.speedup_ppm, 1e6),
        PointValue::SpeedupOverFastest => (slot.over_fastest_ppm, 1e6),
        PointValue::Reward => (slot.reward_ppm, 1e6),
        PointValue::Cost => (slot.cost_microusd, 1e6),
        PointValue::Tokens => (slot.tokens, 1.0),
    };
    (number != ABSENT).then(|| (number as f64 / unit) as f32)
}
