//! The glossary of the pages, for first-time readers.

use leptos::prelude::*;

use super::components::{facts, folded};

/// The words with their meaning, folded away.
pub(crate) fn glossary() -> AnyView {
    let meanings = facts(&[
        ("speedup", "how many times as fast as the reference, or as another baseline that is named, with its interval".into()),
        ("baseline", "a way to do a task's work without a new program: its reference, or another way to run it, such as a CUDA graph".into()),
        ("fastest baseline", "the baseline with the shortest time among those that were measured".into()),
        (
            "derived interval",
            "of a speedup over the fastest baseline: program and baseline were each timed against the reference, and their intervals are combined as independent errors".into(),
        ),
        ("confirmed", "measured a second time, in a fresh process".into()),
        (
            "fast_p",
            "the share of runs whose best program is correct and more than p times as fast as a baseline".into(),
        ),
        ("rubric", "four scores from 1 to 5 by rules, and by a judge where there is one".into()),
        ("reward", "one number from 0 to 3, made of the verdict, the speedup and the rubric".into()),
        ("gate", "where a run waits for a person: after a plan, or after a new best".into()),
        ("scripted", "replies come from files, not from a model".into()),
        ("stitch", "a plan, then one attempt at a time from the best program; a new plan when it stagnates".into()),
        ("forge", "coder and judge in turns, each round from the latest program and its feedback".into()),
        ("beam", "several candidates a round in parallel, each round from the fastest programs so far".into()),
        ("group", "several answers to the same prompt, for training; each group from the best so far".into()),
        ("agent", "a plan, then a session in which the coder uses tools over many turns and submits programs".into()),
    ]);
    folded("Glossary", meanings)
}

#[cfg(test)]
mod tests {
    use super::glossary;

    #[test]
    fn the_words_of_the_pages_are_explained() {
        use leptos::prelude::*;
        let html = glossary().to_html();
        for word in ["derived interval", "fast_p", "rubric", "stitch", "gate", "scripted"] {
            assert!(html.contains(&format!("<dt>{word}</dt>")), "{word}");
        }
    }
}
