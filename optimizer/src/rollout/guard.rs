//! What may not stand in a training row.
//!
//! The reference program is the question, and every prompt shows it. What may not be there: the program that is the answer,
//! programs that were written later or in another line of attempts, names of stored objects, and, in what is trained on,
//! lessons of other runs, whose tasks may be held out. And no task may be in two splits.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, EarlierVersion};
use serde::Serialize;

use super::{Message, Rollout, Split};

/// A program shorter than this says nothing when it is found in a prompt.
const MIN_PROGRAM_CHARS: usize = 200;
/// The heading of lessons in a prompt.
pub const LESSONS_HEADING: &str = "## What changes brought in other runs";

/// Why an attempt gives no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// It is still in the works.
    Unfinished,
    /// No model was asked, or none answered.
    NoReply,
    /// Its reply was written beforehand.
    Scripted,
    /// Prompt or reply is not stored any more.
    Pruned,
    /// A turn of an agent session wrote it: its prompt is a conversation of many turns, which a row does not hold.
    AgentSession,
    /// Its prompt cannot be taken apart into messages.
    UnreadablePrompt,
    /// The prompt holds the program that was to be written, or one that its author could not know.
    AnswerInPrompt,
    /// The prompt holds lessons of runs whose tasks may be held out.
    LessonsOfOthers,
}

impl Left {
    /// The printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::NoReply => "no_reply",
            Self::Scripted => "scripted",
            Self::Pruned => "pruned",
            Self::AgentSession => "agent_session",
            Self::UnreadablePrompt => "unreadable_prompt",
            Self::AnswerInPrompt => "answer_in_prompt",
            Self::LessonsOfOthers => "lessons_of_others",
        }
    }
}

/// A task is in two splits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the task `{task}` would be both in {first} and in {second}: nothing is written; this is a defect of the program"
)]
pub struct Leak {
    /// The task's name or fingerprint.
    pub task: String,
    /// One split.
    pub first: &'static str,
    /// The other.
    pub second: &'static str,
}

/// A row that may hold what it must not.
#[derive(Debug, Clone, Copy)]
pub struct Suspect<'a> {
    /// The attempt that it is made of.
    pub attempt: &'a Attempt,
    /// The versions of its program that failed before: the author of a later one was shown them.
    pub earlier: &'a [EarlierVersion],
    /// All attempts of its run.
    pub all: &'a [Attempt],
    /// Sources by hash.
    pub texts: &'a BTreeMap<ArtifactHash, String>,
    /// Its prompt.
    pub prompt: &'a [Message],
    /// The split of its task.
    pub split: Split,
}

/// Whether a row may be used.
pub fn examine(suspect: &Suspect<'_>) -> Result<(), Left> {
    // What the model wrote itself, in a turn before, is no leak.
    let given = || suspect.prompt.iter().filter(|message| message.role != "assistant");
    if suspect.split != Split::Test && given().any(|message| message.content.contains(LESSONS_HEADING)) {
        return Err(Left::LessonsOfOthers);
    }
    let known = lineage(suspect.attempt, suspect.all);
    for other in suspect.all.iter().filter(|other| !known.contains(&other.number)) {
        let Some(source) = other.source.as_ref() else { continue };
        // The same program may have been written twice, and be known from its first time.
        let is_known = suspect.all.iter().any(|a| known.contains(&a.number) && a.source.as_ref() == Some(source))
            || suspect.earlier.iter().any(|version| version.source == *source);
        let program = suspect.texts.get(source).map_or("", |text| text.trim());
        if !is_known
            && program.chars().count() >= MIN_PROGRAM_CHARS
            && given().any(|message| message.content.contains(program))
        {
            return Err(Left::AnswerInPrompt);
        }
    }
    Ok(())
}

/// The numbers of the attempts that an attempt descends from.
fn lineage(attempt: &Attempt, all: &[Attempt]) -> BTreeSet<u32> {
    let mut known = BTreeSet::new();
    let mut next = attempt.parent;
    while let Some(number) = next.filter(|number| known.insert(*number)) {
        next = all.iter().find(|other| other.number == number).and_then(|other| other.parent);
    }
    known
}

/// Whether each task is in one split: by its name, by its bundle, and by what it computes.
pub fn check(rows: &[Rollout]) -> Result<(), Leak> {
    let mut seen: BTreeMap<(u8, &str), Split> = BTreeMap::new();
    for row in rows {
        let keys = [(0, row.task.name.as_str()), (1, row.task.bundle.as_str()), (2, row.task.fingerprint.as_str())];
        for key in keys {
            let first = *seen.entry(key).or_insert(row.split);
            if first != row.split {
                let (first, second) = (first.as_str(), row.split.as_str());
                return Err(Leak { task: key.1.to_owned(), first, second });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::verdict::Verdict;
    use serde_json::json;

    use super::*;

    fn program(name: &str) -> String {
        format!("void {name}() {{\n{}}}", "    work();\n".repeat(30))
    }

    fn attempt(number: u32, parent: Option<u32>, program: &str) -> Attempt {
        serde_json::from_value(json!({
            "number": number, "plan_version": 1, "subtask": 1, "stage": "optimize", "parent": parent,
            "outcome": "correct_faster", "source": ArtifactHash::of(program.as_bytes()),
            "verdict": Verdict::default(), "findings": [], "calls": [],
        }))
        .unwrap()
    }

    /// Examines attempt 3, made from 1, beside 2, with this question.
    fn examined(question: &str, split: Split, role: &'static str) -> Result<(), Left> {
        examined_after(&[], question, split, role)
    }

    fn examined_after(
        earlier: &[EarlierVersion],
        question: &str,
        split: Split,
        role: &'static str,
    ) -> Result<(), Left> {
        let programs = [program("first"), program("other"), program("third")];
        let all = [attempt(1, None, &programs[0]), attempt(2, None, &programs[1]), attempt(3, Some(1), &programs[2])];
        let texts = programs.iter().map(|text| (ArtifactHash::of(text.as_bytes()), text.clone())).collect();
        let prompt = [Message { role, content: question.to_owned() }];
        examine(&Suspect { attempt: &all[2], earlier, all: &all, texts: &texts, prompt: &prompt, split })
    }

    #[test]
    fn a_prompt_may_hold_the_program_that_it_is_about_and_no_other() {
        let shown = |name: &str| format!("Make it faster:\n```cpp\n{}\n```", program(name));
        assert_eq!(examined(&shown("first"), Split::Train, "user"), Ok(()));
        assert_eq!(examined(&shown("other"), Split::Train, "user"), Err(Left::AnswerInPrompt), "of another line");
        assert_eq!(examined(&shown("third"), Split::Train, "user"), Err(Left::AnswerInPrompt), "the answer itself");
        assert_eq!(examined(&shown("third"), Split::Train, "assistant"), Ok(()), "its own words");
        let version = json!({"source": ArtifactHash::of(program("third").as_bytes()), "outcome": "compile_failed"});
        let unchanged: EarlierVersion = serde_json::from_value(version).unwrap();
        assert_eq!(
            examined_after(&[unchanged], &shown("third"), Split::Train, "user"),
            Ok(()),
            "a fix that changed nothing"
        );
    }

    #[test]
    fn what_is_trained_on_holds_no_lessons_of_tasks_that_may_be_held_out() {
        let question = format!("{LESSONS_HEADING}\n\n- matmul: 1.50x");
        assert_eq!(examined(&question, Split::Train, "user"), Err(Left::LessonsOfOthers));
        assert_eq!(examined(&question, Split::Validation, "user"), Err(Left::LessonsOfOthers));
        assert_eq!(examined(&question, Split::Test, "user"), Ok(()));
    }
}
