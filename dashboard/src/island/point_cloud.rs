//! The chart of all attempts: packed numbers from the API, drawn into one canvas.

use leptos::html::Canvas;
use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::browser::cloud::{self, Cloud};

/// The values that can be drawn, and the baseline of each. The first one is the default.
const BASELINES: [(&str, &str); 2] = [("speedup_over_fastest", "the fastest baseline"), ("speedup", "the reference")];

/// State of the chart.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Loading,
    /// Number of points drawn.
    Drawn(usize),
    Failed,
}

/// Renders the chart.
#[island]
pub(crate) fn PointCloud(
    /// The filter, as in the address of the list.
    query: String,
) -> impl IntoView {
    let canvas = NodeRef::<Canvas>::new();
    let seen = RwSignal::new(Seen::Loading);
    let (begin, end) = (RwSignal::new(String::new()), RwSignal::new(String::new()));
    let unfolded = RwSignal::new(false);
    let (first, over_first) = BASELINES[0];
    let value = RwSignal::new(first.to_owned());
    Effect::new(move |_| {
        // A collapsed chart downloads no data.
        let Some(canvas) = canvas.get().filter(|_| unfolded.get()) else { return };
        let asked = value.get();
        let address = format!("/api/v1/attempts/points?value={asked}&{query}");
        spawn_local(async move {
            let cloud = Cloud::read(&address).await;
            // The reader may have selected another baseline while these points were loading.
            if value.get_untracked() != asked {
                return;
            }
            match cloud {
                Some(cloud) => {
                    cloud::draw(&canvas, &cloud);
                    begin.set(cloud.begin());
                    end.set(cloud.end());
                    seen.set(Seen::Drawn(cloud.len()));
                }
                None => seen.set(Seen::Failed),
            }
        });
    });
    let unfold = move |_| {
        if !unfolded.get_untracked() {
            unfolded.set(true);
        }
    };
    let said = move || match seen.get() {
        Seen::Loading => "Reading all attempts …".to_owned(),
        Seen::Drawn(count) => {
            let over = BASELINES.iter().find(|(name, _)| value.with(|value| value == name));
            let over = over.map_or(over_first, |(_, over)| over);
            format!(
                "{count} attempts by when they began and by their speedup over {over}; what has none is at the lower edge"
            )
        }
        Seen::Failed => "The attempts could not be read: load the page again.".to_owned(),
    };
    view! {
        <details class="picture needs-script" on:toggle=unfold>
            <summary>"All of them as dots"</summary>
            <p class="filters">
                <label>
                    "Speedup over"
                    <select name="value" on:change=move |event| value.set(event_target_value(&event))>
                        {BASELINES.into_iter().map(|(name, over)| view! { <option value=name>{over}</option> }).collect_view()}
                    </select>
                </label>
            </p>
            <figure class="cloud">
                <canvas node_ref=canvas width="1200" height="300" role="img" aria-label=said></canvas>
                <p class="cloud-times" aria-hidden="true"><span>{begin}</span><span>{end}</span></p>
                <figcaption class="quiet" role="status">{said}</figcaption>
            </figure>
        </details>
    }
}
