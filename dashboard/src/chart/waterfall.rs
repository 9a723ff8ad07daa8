//! Who did what when: one lane for each worker, bars for what it carried out.

use std::fmt::Write as _;

use super::MAX_MARKS;
use super::frame::{Caption, Chart, Entry, Table, WIDTH, figure, line, nothing, rect, shortened};
use super::number::{Unit, float, show};
use super::scale::{Scale, Spread};
use crate::markup::Markup;

/// Maximum number of rows: what happens at the same time in one lane needs several.
const MAX_ROWS: usize = 60;
/// Room for one row.
const ROW: f64 = 18.0;
/// Where bars begin.
const LEFT: f64 = 150.0;

/// Something that took its time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Task {
    /// Who carried it out.
    pub(crate) lane: String,
    /// What it was.
    pub(crate) name: String,
    /// Its class.
    pub(crate) class: &'static str,
    /// When it could have begun, in milliseconds of any clock.
    pub(crate) wanted_ms: f64,
    /// When it began.
    pub(crate) begin_ms: f64,
    /// When it ended.
    pub(crate) end_ms: f64,
    /// Where it leads.
    pub(crate) href: Option<String>,
}

/// The waterfall. `kinds` names the classes.
pub(crate) fn waterfall(caption: &Caption, kinds: &[(&'static str, &'static str)], tasks: &[Task]) -> Chart {
    let mut tasks: Vec<&Task> =
        tasks.iter().filter(|task| task.begin_ms.is_finite() && task.end_ms.is_finite()).collect();
    tasks.sort_by(|a, b| a.begin_ms.total_cmp(&b.begin_ms));
    let left_out = tasks.len().saturating_sub(MAX_MARKS);
    tasks.truncate(MAX_MARKS);
    let Some(origin) = tasks.first().map(|task| task.begin_ms) else {
        return nothing(caption, "No step ran yet.");
    };
    let ends = tasks.iter().map(|task| task.end_ms - origin).chain([0.0, 1.0]);
    let Some(scale) = Scale::over(Spread::Linear, ends, LEFT, WIDTH - 12.0) else {
        return nothing(caption, "No step ran yet.");
    };
    let (rows, placed) = rows(&tasks);
    let height = 26.0 + ROW * float(rows.len());
    let mut out = Markup::new();
    for tick in scale.ticks() {
        let Some(at) = scale.place(tick) else { continue };
        line(&mut out, "grid", (at, 20.0), (at, height));
        out.tag("text")
            .at("x", at)
            .at("y", 13.0)
            .with("class", "tick middle")
            .text(&show(tick * 1e6, Unit::Nanoseconds));
    }
    let mut named = "";
    for (index, lane) in rows.iter().enumerate() {
        if *lane != named {
            named = lane;
            let y = 26.0 + ROW * float(index);
            line(&mut out, "grid", (0.0, y - 1.0), (WIDTH, y - 1.0));
            out.tag("text").at("x", LEFT - 8.0).at("y", y + 12.0).with("class", "tick end").text(&shortened(lane, 22));
        }
    }
    for (task, row) in tasks.iter().zip(placed) {
        bar(&mut out, task, 26.0 + ROW * float(row), &scale, origin);
    }
    let mut caption = caption.clone();
    if left_out > 0 {
        let _ = write!(caption.description, " The last {left_out} are not drawn.");
    }
    let legend: Vec<Entry> = kinds.iter().map(|(class, words)| (*class, (*words).to_owned())).collect();
    let time = |ms: f64| show(ms * 1e6, Unit::Nanoseconds);
    let table = tasks.iter().map(|task| {
        vec![
            task.lane.clone(),
            task.name.clone(),
            time(task.begin_ms - origin),
            time((task.begin_ms - task.wanted_ms).max(0.0)),
            time(task.end_ms - task.begin_ms),
        ]
    });
    let table = Table::of(&["Who", "What", "Begun after", "Waited", "Took"], tasks.len(), table);
    figure(&caption, (WIDTH, height), &out, &legend, Some(&table))
}

/// The lane of each row, and the row of each task: the first one of its lane that is free again.
fn rows<'a>(tasks: &[&'a Task]) -> (Vec<&'a str>, Vec<usize>) {
    let mut lanes: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut places = Vec::new();
    for task in tasks {
        let lane = match lanes.iter().position(|(name, _)| *name == task.lane) {
            Some(found) => found,
            // More lanes than rows: later lanes share the last row.
            None if lanes.len() >= MAX_ROWS / 2 => lanes.len() - 1,
            None => {
                lanes.push((&task.lane, Vec::new()));
                lanes.len() - 1
            }
        };
        let used: usize = lanes.iter().map(|(_, rows)| rows.len()).sum();
        let free = &mut lanes[lane].1;
        let row = match free.iter().position(|end| *end <= task.begin_ms) {
            Some(row) => row,
            None if used >= MAX_ROWS && !free.is_empty() => free.len() - 1,
            None => {
                free.push(f64::NEG_INFINITY);
                free.len() - 1
            }
        };
        free[row] = free[row].max(task.end_ms);
        places.push((lane, row));
    }
    let first: Vec<usize> = lanes
        .iter()
        .scan(0, |sum, (_, rows)| {
            let first = *sum;
            *sum += rows.len();
            Some(first)
        })
        .collect();
    let names = lanes.iter().flat_map(|(name, rows)| std::iter::repeat_n(*name, rows.len())).collect();
    (names, places.into_iter().map(|(lane, row)| first[lane] + row).collect())
}

fn bar(out: &mut Markup, task: &Task, y: f64, scale: &Scale, origin: f64) {
    let place = |ms: f64| scale.place(ms - origin);
    let (Some(from), Some(to)) = (place(task.begin_ms), place(task.end_ms)) else { return };
    let words = format!("{}: {}", task.name, show((task.end_ms - task.begin_ms) * 1e6, Unit::Nanoseconds));
    let draw = |out: &mut Markup| {
        if let Some(wanted) = place(task.wanted_ms).filter(|wanted| from - wanted > 1.0) {
            rect(out, "waited", (wanted, y + 6.0), (from - wanted, ROW - 14.0), None);
        }
        let class = format!("bar {}", task.class);
        rect(out, &class, (from, y + 2.0), ((to - from).max(1.5), ROW - 5.0), Some(&words));
    };
    match &task.href {
        Some(href) => out.tag("a").with("href", href).with("aria-label", &words).around(draw),
        None => draw(out),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame::assert_drawable;
    use super::*;

    fn task(lane: &str, begin_ms: f64, end_ms: f64) -> Task {
        Task {
            lane: lane.to_owned(),
            name: "build".to_owned(),
            class: "series-1",
            wanted_ms: begin_ms - 5.0,
            begin_ms,
            end_ms,
            href: None,
        }
    }

    #[test]
    fn what_happens_at_the_same_time_stands_in_rows_of_its_own() {
        let tasks = [task("a", 0.0, 10.0), task("a", 5.0, 15.0), task("b", 6.0, 8.0), task("a", 11.0, 12.0)];
        let (lanes, places) = rows(&tasks.iter().collect::<Vec<_>>());
        assert_eq!(lanes, ["a", "a", "b"]);
        assert_eq!(places, [0, 1, 2, 0]);
    }

    #[test]
    fn ten_thousand_steps_are_a_bounded_picture() {
        let tasks: Vec<Task> =
            (0..10_000_u32).map(|n| task(&format!("worker {}", n % 200), f64::from(n), f64::from(n) + 500.0)).collect();
        let chart = waterfall(&Caption::new("Steps", ""), &[("series-1", "worker")], &tasks);
        assert!(chart.as_str().contains("The last 8000 are not drawn."));
        assert_drawable(&chart);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn hostile_numbers_are_drawn_or_left_out(times in proptest::collection::vec(any::<(f64, f64, f64)>(), 0..60)) {
            let tasks: Vec<Task> = times
                .into_iter()
                .map(|(wanted_ms, begin_ms, end_ms)| Task { wanted_ms, begin_ms, end_ms, ..Task::default() })
                .collect();
            assert_drawable(&waterfall(&Caption::new("Steps", ""), &[], &tasks));
        }
    }
}
