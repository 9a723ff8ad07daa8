//! How much of something is used, as a bar: drawn with attributes, because styles in the page are forbidden.

use leptos::prelude::*;

/// Share of the whole at which a meter warns.
const NEAR: f64 = 0.9;
/// Width of the drawing, in its own units.
const WIDTH: f64 = 100.0;

/// A bar of `used` and, lighter, `reserved`, out of `all`.
#[expect(clippy::cast_precision_loss, reason = "a bar has no more than a thousand dots")]
pub(crate) fn meter(used: u64, reserved: u64, all: u64, what: &str) -> impl IntoView + use<> {
    let share = |part: u64| if all == 0 { 0.0 } else { (part as f64 / all as f64).clamp(0.0, 1.0) };
    let (used_share, both_share) = (share(used), share(used.saturating_add(reserved)));
    let label = format!("{what}: {:.0} %", used_share * 100.0);
    let width = |share: f64| format!("{:.1}", share * WIDTH);
    view! {
        <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=label>
            <rect class="track" width="100" height="6" rx="1"></rect>
            <rect class="reserved" width=width(both_share) height="6" rx="1"></rect>
            <rect class="used" width=width(used_share) height="6" rx="1"></rect>
        </svg>
    }
}

/// The same for a limit that should not be reached: it changes its colour when it nearly is.
pub(crate) fn budget(used: u64, reserved: u64, cap: u64, what: &str) -> impl IntoView + use<> {
    let state = state(used, cap);
    view! { <div class=format!("budget {state}")>{meter(used, reserved, cap, what)}</div> }
}

#[expect(clippy::cast_precision_loss, reason = "a bar has no more than a thousand dots")]
fn state(used: u64, cap: u64) -> &'static str {
    if used >= cap {
        "over"
    } else if used as f64 >= NEAR * cap as f64 {
        "near"
    } else {
        "within"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_stays_within_its_bounds() {
        for (used, all) in [(0, 0), (5, 0), (1, 3), (9, 3), (u64::MAX, 1)] {
            let html = meter(used, used, all, "x").to_html();
            assert!(!html.contains("NaN") && !html.contains("inf") && !html.contains("style="), "{html}");
        }
        assert!(meter(1, 0, 2, "runs").to_html().contains("runs: 50 %"));
    }

    #[test]
    fn a_limit_that_is_nearly_reached_looks_different() {
        assert_eq!(
            [(1, 10), (9, 10), (10, 10), (0, 0)].map(|(used, cap)| state(used, cap)),
            ["within", "near", "over", "over"]
        );
    }
}
