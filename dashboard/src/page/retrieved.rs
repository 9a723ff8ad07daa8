//! Notes and lessons that were looked up for model calls.

use leptos::prelude::*;
use nightshift_protocol::api::{Retrieval, Retrieved, RetrievedLesson, RetrievedNote};

use crate::chart::{Unit, show};
use crate::page::components::{Cell, folded, sentences, table, verbatim};

/// Longest text of a note that is shown, in bytes.
const MAX_NOTE_BYTES: usize = 8 << 10;

/// What was found for each step, whole or by its titles; nothing where nothing was looked up.
pub(crate) fn given(retrievals: &[Retrieval], whole: bool) -> Option<AnyView> {
    let steps = retrievals
        .iter()
        .filter(|retrieval| !retrieval.retrieved.notes.is_empty() || !retrieval.retrieved.lessons.is_empty())
        .map(|retrieval| {
            let key = retrieval.step_key.clone();
            let Retrieved { notes, lessons } = &retrieval.retrieved;
            let found = if whole {
                let notes = notes.iter().map(note).collect::<Vec<_>>();
                view! { {notes}{told(lessons)} }.into_any()
            } else {
                let notes = notes.iter().map(|note| format!("Note: {}", note.title));
                let lessons = lessons.iter().map(|lesson| format!("Lesson of {}: {}", lesson.task, lesson.change));
                sentences(&notes.chain(lessons).collect::<Vec<_>>())
            };
            view! { <h4><code>{key}</code></h4>{found} }
        })
        .collect::<Vec<_>>();
    (!steps.is_empty()).then(|| {
        view! {
            <h3 id="retrieved">"Notes and lessons that were retrieved"</h3>
            <p class="quiet">"Looked up by the first try of each step, and given to all of its calls."</p>
            {steps}
        }
        .into_any()
    })
}

fn note(note: &RetrievedNote) -> AnyView {
    folded(format!("Note: {}", note.title), verbatim(&note.body, MAX_NOTE_BYTES))
}

fn told(lessons: &[RetrievedLesson]) -> AnyView {
    let rows: Vec<Vec<Cell>> = lessons
        .iter()
        .map(|lesson| {
            let certain = if lesson.certain { "" } else { ", may be noise" };
            vec![
                lesson.change.clone().into(),
                Cell::Number(format!("{}{certain}", show(lesson.gain, Unit::Times))),
                Cell::Link(format!("/runs/{}/attempts/{}", lesson.run, lesson.attempt), lesson.task.clone()),
                lesson.operator_class.clone().into(),
                format!("{} ({})", lesson.bound, lesson.bound_from).into(),
                lesson.device.clone().into(),
            ]
        })
        .collect();
    table(&["Change", "Gain", "Learned on", "Kind of operator", "Limited by", "Device"], &rows)
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::time::TimestampMs;

    use super::*;

    #[test]
    fn what_was_retrieved_is_shown_by_its_step_and_as_text() {
        let note = RetrievedNote { id: "n".to_owned(), title: "Tiles <b>".to_owned(), body: "<script>".to_owned() };
        let retrieved = Retrieved { notes: vec![note], lessons: Vec::new() };
        let of = |retrieved: Retrieved| Retrieval {
            step_key: "subtask1/attempt2/write_code".to_owned(),
            at: TimestampMs(0),
            retrieved,
        };
        let html = |whole: bool| {
            let found = [of(retrieved.clone())];
            Owner::new().with(|| given(&found, whole).map(RenderHtml::to_html)).unwrap_or_default()
        };
        for whole in [false, true] {
            let html = html(whole);
            assert!(html.contains("subtask1/attempt2/write_code") && html.contains("Tiles &lt;b&gt;"), "{html}");
            assert!(!html.contains("<script"), "{html}");
            assert_eq!(html.contains("&lt;script"), whole, "texts are long: a page has them when they are asked for");
        }
        assert!(given(&[of(Retrieved::default())], true).is_none());
    }
}
