//! Attempts as points of a scatter: packed, because there may be a million of them.
//!
//! All numbers are little-endian. A header of 32 bytes: the four letters `NSPT`, `u32` version 1, `i64` the moment 0 of the
//! points in milliseconds since 1970, `u64` how many attempts fit the filter, `u32` how many points follow, `u32` 0. Then
//! 16 bytes for each point, oldest first:
//!
//! | offset | type | what |
//! | --- | --- | --- |
//! | 0 | `u32` | key of the run |
//! | 4 | `u32` | when the attempt began, in tenths of a second after moment 0 |
//! | 8 | `f32` | the value that was asked for; NaN when the attempt has none |
//! | 12 | `u16` | number of the attempt |
//! | 14 | `u8` | outcome: its place in [`AttemptOutcome::ALL`] |
//! | 15 | `u8` | bits 0 to 2: stage, its place in [`Stage::ALL`]; bit 3: confirmed; bit 4: best of its run |
//!
//! `GET /attempts/at/{key}/{number}` gives the attempt of a point.

use serde::{Deserialize, Serialize};

use super::attempt_filter::{AttemptFilter, InvalidQuery};
use crate::attempt::Stage;
use crate::attempt_outcome::AttemptOutcome;
use crate::time::TimestampMs;

/// Most points of one answer. With more attempts than that, those that began last are given.
pub const MAX_POINTS: usize = 1_000_000;
/// The media type of packed points.
pub const POINTS_CONTENT_TYPE: &str = "application/vnd.nightshift.points";

const MAGIC: [u8; 4] = *b"NSPT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const POINT_BYTES: usize = 16;
/// Milliseconds of a unit of time.
const UNIT_MS: i64 = 100;

/// The value of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PointValue {
    /// The speedup over the reference.
    #[default]
    Speedup,
    /// The speedup over the fastest baseline.
    SpeedupOverFastest,
    /// The reward.
    Reward,
    /// What its model calls cost, in US dollars.
    Cost,
    /// The tokens of its model calls.
    Tokens,
}

impl PointValue {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Speedup, Self::SpeedupOverFastest, Self::Reward, Self::Cost, Self::Tokens];

    /// The name in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Speedup => "speedup",
            Self::SpeedupOverFastest => "speedup_over_fastest",
            Self::Reward => "reward",
            Self::Cost => "cost",
            Self::Tokens => "tokens",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The query of `GET /attempts/points`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PointsQuery {
    /// Which attempts.
    pub filter: AttemptFilter,
    /// Which of their values.
    pub value: PointValue,
}

impl PointsQuery {
    /// Reads the pairs of a query: those of a filter, and `value`.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidQuery> {
        let mut value = PointValue::default();
        let mut rest = Vec::new();
        for (name, text) in pairs {
            if name.as_ref() == "value" {
                let words = PointValue::ALL.map(PointValue::as_str);
                value = PointValue::parse(text.as_ref())
                    .ok_or_else(|| InvalidQuery::one_of("value", text.as_ref(), &words))?;
            } else {
                rest.push((name, text));
            }
        }
        Ok(Self { filter: AttemptFilter::from_pairs(rest)?, value })
    }

    /// The pairs of its query.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = self.filter.to_pairs();
        if self.value != PointValue::default() {
            pairs.push(("value", self.value.as_str().to_owned()));
        }
        pairs
    }
}

/// A point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttemptPoint {
    /// Key of the run: with the number, it names the attempt.
    pub run_key: u32,
    /// Number of the attempt.
    pub number: u16,
    /// When it began, to a tenth of a second.
    pub created_at: TimestampMs,
    /// The value that was asked for; none when the attempt has none.
    pub value: Option<f32>,
    /// What happened to it.
    pub outcome: AttemptOutcome,
    /// Why it was written.
    pub stage: Stage,
    /// Whether its speedup was confirmed.
    pub confirmed: bool,
    /// Whether it is the best one of its run.
    pub best: bool,
}

/// Points, packed; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptPoints(Vec<u8>);

/// Bytes that are no points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not points of version {VERSION}: {0}")]
pub struct InvalidPoints(&'static str);

impl AttemptPoints {
    /// Packs points that are sorted by the moment they began. `total` is how many attempts fit the filter.
    #[must_use]
    pub fn pack(total: u64, points: &[AttemptPoint]) -> Self {
        let base = points.iter().map(|point| point.created_at.0).min().unwrap_or(0);
        let count = u32::try_from(points.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + points.len() * POINT_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(base.to_le_bytes());
        bytes.extend(total.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        for point in points {
            let units = point.created_at.0.saturating_sub(base) / UNIT_MS;
            let flags = place(&Stage::ALL, &point.stage) | u8::from(point.confirmed) << 3 | u8::from(point.best) << 4;
            bytes.extend(point.run_key.to_le_bytes());
            bytes.extend(u32::try_from(units).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(point.value.unwrap_or(f32::NAN).to_le_bytes());
            bytes.extend(point.number.to_le_bytes());
            bytes.push(place(&AttemptOutcome::ALL, &point.outcome));
            bytes.push(flags);
        }
        Self(bytes)
    }

    /// Packed points that came from somewhere.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, InvalidPoints> {
        let points = Self(bytes);
        if points.0.len() < HEADER_BYTES || points.0[..4] != MAGIC {
            return Err(InvalidPoints("they do not begin like that"));
        }
        if points.u32_at(4) != VERSION {
            return Err(InvalidPoints("they are of another version"));
        }
        let count = usize::try_from(points.u32_at(24)).unwrap_or(usize::MAX);
        if count.checked_mul(POINT_BYTES).and_then(|bytes| bytes.checked_add(HEADER_BYTES)) != Some(points.0.len()) {
            return Err(InvalidPoints("there are not as many as they say"));
        }
        Ok(points)
    }

    /// The bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// How many attempts fit the filter.
    #[must_use]
    pub fn total(&self) -> u64 {
        u64::from_le_bytes(self.array(16))
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.0.len() - HEADER_BYTES) / POINT_BYTES
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The points, oldest first. What this release does not know is given as `pending` and `draft`.
    pub fn iter(&self) -> impl Iterator<Item = AttemptPoint> + '_ {
        let base = i64::from_le_bytes(self.array(8));
        (0..self.len()).map(move |index| {
            let at = HEADER_BYTES + index * POINT_BYTES;
            let value = f32::from_le_bytes(self.array(at + 8));
            let [outcome, flags] = self.array(at + 14);
            AttemptPoint {
                run_key: self.u32_at(at),
                number: u16::from_le_bytes(self.array(at + 12)),
                created_at: TimestampMs(base.saturating_add(i64::from(self.u32_at(at + 4)) * UNIT_MS)),
                value: (!value.is_nan()).then_some(value),
                outcome: *AttemptOutcome::ALL.get(usize::from(outcome)).unwrap_or(&AttemptOutcome::Pending),
                stage: *Stage::ALL.get(usize::from(flags & 7)).unwrap_or(&Stage::Draft),
                confirmed: flags & 8 != 0,
                best: flags & 16 != 0,
            }
        })
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    /// Bytes that are there: the length was looked at.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn points_survive_the_way_through_bytes() {
        let mut points = Vec::new();
        for (index, outcome) in AttemptOutcome::ALL.into_iter().enumerate() {
            let step = i64::try_from(index).unwrap();
            points.push(AttemptPoint {
                run_key: 70_000 + u32::try_from(index).unwrap(),
                number: u16::try_from(index + 1).unwrap(),
                created_at: TimestampMs(1_767_225_600_000 + step * 86_400_000),
                value: (index % 2 == 0).then_some(1.5),
                outcome,
                stage: Stage::ALL[index % Stage::ALL.len()],
                confirmed: index % 3 == 0,
                best: index % 5 == 0,
            });
        }
        let packed = AttemptPoints::pack(99, &points);
        let read = AttemptPoints::from_bytes(packed.into_bytes()).unwrap();
        assert_eq!((read.total(), read.len(), read.is_empty()), (99, 11, false));
        assert_eq!(read.iter().collect::<Vec<_>>(), points);
    }

    #[test]
    fn bytes_that_are_no_points_are_refused() {
        let good = AttemptPoints::pack(0, &[]).into_bytes();
        assert!(AttemptPoints::from_bytes(good.clone()).unwrap().is_empty());
        let mut long = good.clone();
        long.push(0);
        let mut newer = good.clone();
        newer[4] = 2;
        for bad in
            [Vec::new(), good[..31].to_vec(), b"{\"error\":{\"code\":\"request.invalid\"}}".to_vec(), long, newer]
        {
            assert!(AttemptPoints::from_bytes(bad).is_err());
        }
    }

    #[test]
    fn the_query_of_points_is_a_filter_and_a_value() {
        let query = PointsQuery::from_pairs([("value", "cost"), ("task", "gemm")]).unwrap();
        assert_eq!(PointsQuery::from_pairs(query.to_pairs()).unwrap(), query);
        assert!(
            PointsQuery::from_pairs([("value", "height")])
                .unwrap_err()
                .reason
                .contains("speedup, speedup_over_fastest, reward")
        );
        assert!(PointsQuery::from_pairs([("sort", "cost")]).is_err());
    }
}
