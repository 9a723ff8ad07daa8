//! Which of the notes and lessons that were found a prompt gets: few, short, and about this machine.

use std::collections::BTreeSet;

use nightshift_engine::store::{LessonRecord, NoteRecord};
use nightshift_protocol::attempt::Bound;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::task::{Target, TaskSpec};

use super::{Question, RetrievedLesson, RetrievedNote};

/// Notes in a prompt.
pub const MAX_NOTES: usize = 4;
/// Bytes of all notes in a prompt together.
pub const MAX_NOTES_BYTES: usize = 4_000;
/// Lessons in a prompt.
pub const MAX_LESSONS: usize = 6;
/// Bytes of what a lesson says was changed.
pub const MAX_CHANGE_BYTES: usize = 400;

/// Words of a search, at most.
const MAX_WORDS: usize = 48;
/// Letters of a word that tells anything.
const MIN_WORD_CHARS: usize = 3;
/// Words that tell nothing.
const EMPTY_WORDS: [&str; 30] = [
    "and", "are", "but", "can", "each", "for", "from", "has", "have", "into", "its", "not", "one", "only", "out",
    "over", "program", "should", "that", "the", "then", "there", "this", "time", "use", "uses", "was", "which", "with",
    "you",
];

/// A question in the words of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// What is searched for, the most telling words first.
    pub words: Vec<String>,
    /// Classes of the operators in question.
    pub operator_classes: Vec<String>,
    /// What limits the program.
    pub bound: Option<Bound>,
    /// Names under which notes may mean this machine: the target, and the GPU's architecture.
    pub architectures: Vec<String>,
    /// Model of the device.
    pub device: String,
}

impl About {
    /// Of a question.
    #[must_use]
    pub fn of(question: &Question<'_>) -> Self {
        let Question { spec, prepared, subtask, bound, said } = *question;
        let in_scope = |name: &str| subtask.is_none_or(|subtask| subtask.scope.iter().any(|other| other == name));
        let operator_classes: BTreeSet<String> = spec
            .operators
            .iter()
            .filter(|operator| in_scope(&operator.name))
            .map(|operator| operator.class.to_ascii_lowercase())
            .collect();
        let expected = subtask.map_or("", |subtask| subtask.expected_bottleneck.as_str());
        let bound = bound.or_else(|| bound_of(expected));
        let architectures = architectures(spec.target, &prepared.machine);
        let methods = subtask.map(|subtask| subtask.methods.join(" ")).unwrap_or_default();
        let texts = operator_classes
            .iter()
            .map(String::as_str)
            .chain(bound.map(Bound::as_str))
            .chain(architectures.iter().map(String::as_str))
            .chain([said, methods.as_str(), spec.title.as_str(), spec.description.as_str()]);
        let words = words(texts);
        Self {
            words,
            operator_classes: operator_classes.into_iter().collect(),
            bound,
            architectures,
            device: device(spec, &prepared.machine),
        }
    }
}

/// The model of the device that a program runs on.
#[must_use]
pub fn device(spec: &TaskSpec, machine: &MachineFacts) -> String {
    match spec.target {
        Target::Cpu => machine.processor.clone(),
        Target::Cuda => machine.gpus.first().map_or_else(|| "unknown GPU".to_owned(), |gpu| gpu.name.clone()),
    }
}

fn architectures(target: Target, machine: &MachineFacts) -> Vec<String> {
    let mut names = vec![target.as_str().to_owned()];
    if target == Target::Cuda {
        let sm = machine.gpus.first().map(|gpu| gpu.compute_capability.to_string().replace('.', ""));
        names.extend(sm.map(|sm| format!("sm_{sm}")));
    }
    names
}

fn bound_of(text: &str) -> Option<Bound> {
    [Bound::Memory, Bound::Compute, Bound::Latency, Bound::Launch, Bound::Host]
        .into_iter()
        .find(|bound| bound.as_str() == text)
}

fn words<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut words = Vec::new();
    for text in texts {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let word = word.to_ascii_lowercase();
            let tells = word.len() >= MIN_WORD_CHARS && !EMPTY_WORDS.contains(&word.as_str());
            if tells && !words.contains(&word) && words.len() < MAX_WORDS {
                words.push(word);
            }
        }
    }
    words
}

/// The few notes that fit: about this machine or any, those that speak of the bound first, then as they were found.
#[must_use]
pub fn notes(found: Vec<NoteRecord>, about: &About) -> Vec<RetrievedNote> {
    let meant = |tags: &[String]| tags.is_empty() || tags.iter().any(|tag| about.architectures.contains(tag));
    let classes = &about.operator_classes;
    let mut fitting: Vec<(usize, NoteRecord)> = found
        .into_iter()
        .filter(|note| meant(&note.architectures))
        .filter(|note| {
            let names_ours = |tag: &String| classes.iter().any(|class| class.contains(tag.as_str()));
            note.operators.is_empty() || note.operators.iter().any(names_ours)
        })
        .enumerate()
        .collect();
    fitting.sort_by_key(|(place, note)| {
        let speaks = about.bound.is_some_and(|bound| note.bounds.iter().any(|tag| tag == bound.as_str()));
        let of_another = !speaks && about.bound.is_some() && !note.bounds.is_empty();
        (of_another, !speaks, *place)
    });
    let mut bytes = 0;
    let mut chosen = Vec::new();
    for (_, note) in fitting {
        let size = note.title.len() + note.body.len();
        if chosen.len() < MAX_NOTES && bytes + size <= MAX_NOTES_BYTES {
            bytes += size;
            chosen.push(RetrievedNote { id: note.id, title: note.title, body: note.body });
        }
    }
    chosen
}

/// The few lessons that tell most: of the same bound and device first, sure ones before unsure ones, and of those the ones
/// that changed most, for better or worse. The same change counts once.
#[must_use]
pub fn lessons(found: Vec<LessonRecord>, about: &About) -> Vec<RetrievedLesson> {
    let bound = about.bound.map_or("", Bound::as_str);
    let mut ranked: Vec<LessonRecord> = found;
    ranked.sort_by_key(|lesson| {
        let size = lesson.gain_ppm.abs_diff(1_000_000);
        (lesson.bound != bound, lesson.device != about.device, !lesson.certain, std::cmp::Reverse(size))
    });
    let mut said = BTreeSet::new();
    ranked
        .into_iter()
        .filter(|lesson| said.insert((lesson.operator_class.clone(), lesson.change.trim().to_ascii_lowercase())))
        .take(MAX_LESSONS)
        .map(|lesson| RetrievedLesson {
            run: lesson.run.to_string(),
            attempt: lesson.attempt,
            task: lesson.task,
            operator_class: lesson.operator_class,
            bound: lesson.bound,
            bound_from: lesson.bound_from.as_str().to_owned(),
            same_device: lesson.device == about.device,
            device: lesson.device,
            change: clipped(&lesson.change),
            gain: of_ppm(lesson.gain_ppm),
            certain: lesson.certain,
        })
        .collect()
}

fn clipped(text: &str) -> String {
    let end = (0..=MAX_CHANGE_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    if end < text.len() { format!("{}...", &text[..end]) } else { text.to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "gains in millionths are far below 2^52")]
fn of_ppm(gain_ppm: u64) -> f64 {
    gain_ppm as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use nightshift_engine::store::BoundFrom;
    use nightshift_protocol::id::RunId;
    use nightshift_protocol::time::TimestampMs;

    use super::*;

    fn note(id: &str, bounds: &[&str], operators: &[&str], architectures: &[&str]) -> NoteRecord {
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        NoteRecord {
            id: id.to_owned(),
            source: "built_in".to_owned(),
            title: id.to_owned(),
            body: "text".to_owned(),
            bounds: tags(bounds),
            operators: tags(operators),
            architectures: tags(architectures),
        }
    }

    fn about() -> About {
        About {
            words: Vec::new(),
            operator_classes: vec!["batched_matmul".to_owned()],
            bound: Some(Bound::Memory),
            architectures: vec!["cuda".to_owned(), "sm_90".to_owned()],
            device: "here".to_owned(),
        }
    }

    fn ids(notes: Vec<NoteRecord>) -> Vec<String> {
        super::notes(notes, &about()).into_iter().map(|note| note.id).collect()
    }

    #[test]
    fn notes_about_other_machines_and_operators_are_left_out() {
        let found = vec![
            note("blackwell", &[], &[], &["sm_100"]),
            note("softmax", &[], &["softmax"], &[]),
            note("cpu", &[], &[], &["cpu"]),
            note("matmul", &[], &["matmul"], &["sm_90"]),
            note("any", &[], &[], &[]),
        ];
        assert_eq!(ids(found), ["matmul", "any"]);
    }

    #[test]
    fn notes_about_the_bound_come_first_and_those_about_another_last() {
        let found = vec![
            note("compute", &["compute"], &[], &[]),
            note("any", &[], &[], &[]),
            note("memory", &["memory", "latency"], &[], &[]),
        ];
        assert_eq!(ids(found), ["memory", "any", "compute"]);
    }

    #[test]
    fn a_prompt_gets_few_notes_and_few_bytes() {
        let many: Vec<_> = (0..9).map(|n| note(&format!("n{n}"), &[], &[], &[])).collect();
        assert_eq!(ids(many).len(), MAX_NOTES);
        let mut long = note("long", &["memory"], &[], &[]);
        long.body = "x".repeat(MAX_NOTES_BYTES);
        assert_eq!(ids(vec![long, note("short", &[], &[], &[])]), ["short"]);
    }

    fn lesson(change: &str, bound: &str, device: &str, gain_ppm: u64, certain: bool) -> LessonRecord {
        let Ok(run) = format!("run_{:032x}", 7).parse::<RunId>() else { panic!("no id") };
        LessonRecord {
            run,
            attempt: 1,
            task: "t".to_owned(),
            operator_class: "matmul".to_owned(),
            bound: bound.to_owned(),
            bound_from: BoundFrom::Plan,
            device: device.to_owned(),
            change: change.to_owned(),
            gain_ppm,
            certain,
            at: TimestampMs(1),
        }
    }

    #[test]
    fn the_most_telling_lessons_come_first_and_each_once() {
        let found = vec![
            lesson("elsewhere", "memory", "there", 3_000_000, true),
            lesson("small", "memory", "here", 1_050_000, true),
            lesson("harmful", "memory", "here", 500_000, true),
            lesson("unsure", "memory", "here", 9_000_000, false),
            lesson("Harmful ", "memory", "here", 990_000, true),
            lesson("compute", "compute", "here", 4_000_000, true),
        ];
        let changes: Vec<String> = lessons(found, &about()).into_iter().map(|lesson| lesson.change).collect();
        assert_eq!(changes, ["harmful", "small", "unsure", "elsewhere", "compute"]);
    }

    #[test]
    fn a_question_becomes_words_that_tell_something() {
        let texts = ["matmul", "memory", "sm_90", "the L2 traffic is too high; use cp.async and tiles"];
        assert_eq!(words(texts.into_iter()), ["matmul", "memory", "traffic", "too", "high", "async", "tiles"]);
    }
}
