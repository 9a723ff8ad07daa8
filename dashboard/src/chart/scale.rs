//! From values to places, and where the ticks stand. Total for every number that there is.

use super::number::float;

/// Values beyond this are shown at it: their differences would not be finite.
const LARGEST: f64 = 1e150;
/// Values closer to nothing are shown at it on a logarithmic scale.
const SMALLEST: f64 = 1e-150;
/// Maximum number of ticks of an axis.
const MAX_TICKS: usize = 12;
/// Wanted ticks of an axis.
const WANTED_TICKS: f64 = 5.0;

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; what is not above 0 has no place.
    Log,
}

/// A scale from values to places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale over the values that have a place; none when there is none.
    pub(crate) fn over(spread: Spread, values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let usable = values.into_iter().filter_map(|value| usable(spread, value));
        let (low, high) = usable.fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        })?;
        let (low, high) = match spread {
            Spread::Linear if high - low <= low.abs().max(high.abs()) * 1e-9 => {
                let margin = if high.abs() < 1e-9 { 0.5 } else { high.abs() * 0.1 };
                (low - margin, high + margin)
            }
            Spread::Log if high / low < 1.000_001 => (low / 1.5, high * 1.5),
            Spread::Linear | Spread::Log => (low, high),
        };
        Some(Self { spread, low, high, from, to })
    }

    /// The same with some air at both ends. What is never below zero gets no air there: a negative time is no time.
    pub(crate) fn with_margin(self, share: f64) -> Self {
        match self.spread {
            Spread::Linear => {
                let margin = (self.high - self.low) * share;
                let low = if self.low >= 0.0 { (self.low - margin).max(0.0) } else { self.low - margin };
                let high = if self.high <= 0.0 { (self.high + margin).min(0.0) } else { self.high + margin };
                Self { low, high, ..self }
            }
            Spread::Log => {
                let margin = (self.high / self.low).powf(share);
                Self { low: self.low / margin, high: self.high * margin, ..self }
            }
        }
    }

    /// Lowest value.
    pub(crate) fn low(&self) -> f64 {
        self.low
    }

    /// Highest value.
    pub(crate) fn high(&self) -> f64 {
        self.high
    }

    /// Where it begins.
    pub(crate) fn from(&self) -> f64 {
        self.from
    }

    /// Where it ends.
    pub(crate) fn to(&self) -> f64 {
        self.to
    }

    /// The place of a value, within the scale; none for what has no place.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let share = self.share(value)?;
        Some(self.from + share * (self.to - self.from))
    }

    /// How far up a value is, from 0 to 1.
    pub(crate) fn share(&self, value: f64) -> Option<f64> {
        let value = usable(self.spread, value)?;
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            // Differences of logarithms: the ratio of two finite numbers need not be finite.
            Spread::Log => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// The value at a share from 0 to 1.
    pub(crate) fn value_at(&self, share: f64) -> f64 {
        match self.spread {
            Spread::Linear => self.low + share * (self.high - self.low),
            Spread::Log => (self.low.ln() + share * (self.high.ln() - self.low.ln())).exp(),
        }
    }

    /// Values that people expect at an axis, ascending; never more than twelve.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        let mut ticks = match self.spread {
            Spread::Linear => self.linear_ticks(),
            Spread::Log => self.log_ticks(),
        };
        // A tick at an end stays in spite of rounding.
        let (low, high) = match self.spread {
            Spread::Linear => {
                let rounding = (self.high - self.low) * 1e-9;
                (self.low - rounding, self.high + rounding)
            }
            Spread::Log => (self.low * (1.0 - 1e-9), self.high * (1.0 + 1e-9)),
        };
        ticks.retain(|tick| *tick >= low && *tick <= high);
        ticks.dedup();
        if ticks.len() < 2 {
            ticks = vec![self.low, self.high];
        }
        ticks
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / WANTED_TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let Some(step) = step.filter(|step| step.is_finite() && *step > 0.0) else { return Vec::new() };
        let first = (self.low / step - 1e-9).ceil();
        // A product instead of a sum: errors do not add up, and zero is zero.
        (0..MAX_TICKS).map(|index| (first + float(index)) * step).take_while(|tick| *tick <= self.high + step).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let decades = high - low;
        let per_decade: &[f64] = if decades <= 1.2 {
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
        } else if decades <= 3.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let stride = (decades / WANTED_TICKS).floor().max(1.0);
        let first = low.floor();
        (0..MAX_TICKS)
            .map(|index| first + float(index) * stride)
            .take_while(|exponent| *exponent <= high + 1e-9)
            .flat_map(|exponent| per_decade.iter().map(move |factor| factor * 10_f64.powf(exponent)))
            .filter(|tick| *tick >= self.low * (1.0 - 1e-9))
            .take(MAX_TICKS)
            .collect()
    }
}

fn usable(spread: Spread, value: f64) -> Option<f64> {
    match spread {
        Spread::Linear => value.is_finite().then(|| value.clamp(-LARGEST, LARGEST)),
        Spread::Log => (value.is_finite() && value > 0.0).then(|| value.clamp(SMALLEST, LARGEST)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn over(spread: Spread, values: &[f64]) -> Scale {
        Scale::over(spread, values.iter().copied(), 0.0, 100.0).unwrap_or_else(|| panic!("{values:?} has a scale"))
    }

    #[test]
    fn ticks_are_what_people_expect() {
        assert_eq!(over(Spread::Linear, &[0.0, 10.0]).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let around_zero = over(Spread::Linear, &[-0.3, 0.2]).ticks();
        assert_eq!(
            around_zero.iter().map(|tick| format!("{tick:.1}")).collect::<Vec<_>>(),
            ["-0.3", "-0.2", "-0.1", "0.0", "0.1", "0.2"]
        );
        assert_eq!(over(Spread::Log, &[0.5, 4.0]).ticks().first(), Some(&0.5));
        assert_eq!(over(Spread::Log, &[1.0, 1e9]).ticks(), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]);
    }

    #[test]
    fn values_without_a_place_make_no_scale() {
        assert_eq!(Scale::over(Spread::Linear, [f64::NAN, f64::INFINITY], 0.0, 1.0), None);
        assert_eq!(Scale::over(Spread::Log, [0.0, -3.0], 0.0, 1.0), None);
        assert_eq!(Scale::over(Spread::Linear, [], 0.0, 1.0), None);
    }

    #[test]
    fn the_widest_scale_has_a_place_for_everything() {
        let scale = over(Spread::Log, &[f64::MIN_POSITIVE, 1e300]).with_margin(0.1);
        assert!(scale.ticks().into_iter().all(|tick| scale.place(tick).is_some()));
    }

    #[test]
    fn what_is_never_negative_has_no_negative_air() {
        let times = over(Spread::Linear, &[3.0, 1_000.0]).with_margin(0.1);
        assert_eq!(times.low().to_bits(), 0.0_f64.to_bits());
        assert!(times.high() > 1_000.0);
        let losses = over(Spread::Linear, &[-1_000.0, -3.0]).with_margin(0.1);
        assert!(losses.high() <= 0.0 && losses.low() < -1_000.0);
        assert!(over(Spread::Linear, &[-1.0, 1.0]).with_margin(0.1).low() < -1.0);
    }

    #[test]
    fn one_value_stands_in_the_middle() {
        for (spread, value) in [(Spread::Linear, 0.0), (Spread::Linear, -7.0), (Spread::Log, 3.0)] {
            let place = over(spread, &[value]).place(value).unwrap_or(-1.0);
            assert!((place - 50.0).abs() < 1e-6, "{spread:?} {value}: {place}");
        }
    }

    fn hostile() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>(),
            -10.0..10.0f64,
            Just(0.0),
            Just(f64::MAX),
            Just(f64::MIN),
            Just(f64::MIN_POSITIVE),
            Just(1e300),
            Just(f64::NAN),
            Just(f64::NEG_INFINITY),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn every_number_has_a_finite_place_or_none(
            values in proptest::collection::vec(hostile(), 0..20), log in any::<bool>(), margin in 0.0..0.2f64,
        ) {
            let spread = if log { Spread::Log } else { Spread::Linear };
            if let Some(scale) = Scale::over(spread, values.iter().copied(), 10.0, 90.0) {
                let scale = scale.with_margin(margin);
                for value in &values {
                    if let Some(place) = scale.place(*value) {
                        prop_assert!((10.0..=90.0).contains(&place), "{value} at {place}");
                    }
                }
                let ticks = scale.ticks();
                prop_assert!((2..=MAX_TICKS).contains(&ticks.len()), "{ticks:?}");
                prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
                prop_assert!(ticks.iter().all(|tick| tick.is_finite() && scale.place(*tick).is_some()));
            }
        }
    }
}
