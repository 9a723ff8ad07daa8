//! Colours by syntax tree.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use tree_sitter_highlight::{Highlight, HighlightConfiguration, HighlightEvent, Highlighter};

use super::text::{Piece, Source};

/// Largest text that is coloured: larger ones are shown as they are.
const MAX_COLOURED_BYTES: usize = 256 << 10;
/// Parsers need long for what is nested without end: after this time the rest stays without colours.
const PATIENCE: Duration = Duration::from_millis(500);
/// Brackets that are open at once, at most: no program needs more.
const MAX_OPEN_BRACKETS: usize = 300;

/// What a source is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    /// CUDA C++, C++ and C.
    Cuda,
    /// Python.
    Python,
}

impl Language {
    /// What a program is most likely written in: a module with `ModelNew` is Python, everything else that a task
    /// takes is CUDA C++ or C++.
    pub(crate) fn of_program(source: &str) -> Self {
        let is_python = source
            .lines()
            .take(400)
            .any(|line| line.starts_with("import ") || line.starts_with("from ") || line.starts_with("def "));
        if is_python { Self::Python } else { Self::Cuda }
    }
}

/// Names of captures, and the classes that they are shown in; none is as plain as what has no name.
const CLASSES: [(&str, Option<&str>); 22] = [
    ("attribute", Some("h-k")),
    ("comment", Some("h-c")),
    ("constant", Some("h-v")),
    ("constructor", Some("h-t")),
    ("delimiter", None),
    ("embedded", None),
    ("escape", Some("h-e")),
    ("function", Some("h-f")),
    ("keyword", Some("h-k")),
    ("label", Some("h-v")),
    ("module", Some("h-t")),
    ("number", Some("h-n")),
    ("operator", None),
    ("property", None),
    ("punctuation", None),
    ("punctuation.launch", Some("h-l")),
    ("string", Some("h-s")),
    ("type", Some("h-t")),
    ("variable", None),
    ("variable.builtin", Some("h-b")),
    ("variable.parameter", None),
    ("constant.builtin", Some("h-v")),
];

/// What the grammar's own queries do not say: launches, places of threads, and literals of characters.
const CUDA_WORDS: &str = r#"
["<<<" ">>>"] @punctuation.launch
((identifier) @variable.builtin (#match? @variable.builtin "^(threadIdx|blockIdx|blockDim|gridDim|warpSize)$"))
["__shared__" "__constant__" "__restrict__" "__grid_constant__"] @keyword
(char_literal) @string
"#;

static CUDA: LazyLock<Option<HighlightConfiguration>> = LazyLock::new(|| {
    // The grammar builds on C++, whose grammar builds on C; the last pattern that fits wins.
    let query = [
        tree_sitter_c::HIGHLIGHT_QUERY,
        tree_sitter_cpp::HIGHLIGHT_QUERY,
        tree_sitter_cuda::HIGHLIGHTS_QUERY,
        CUDA_WORDS,
    ]
    .join("\n");
    configured(tree_sitter_cuda::LANGUAGE.into(), "cuda", &query)
});

static PYTHON: LazyLock<Option<HighlightConfiguration>> =
    LazyLock::new(|| configured(tree_sitter_python::LANGUAGE.into(), "python", tree_sitter_python::HIGHLIGHTS_QUERY));

fn configured(language: tree_sitter::Language, name: &str, query: &str) -> Option<HighlightConfiguration> {
    let mut configuration = HighlightConfiguration::new(language, name, query, "", "").ok()?;
    configuration.configure(&CLASSES.map(|(name, _)| name));
    Some(configuration)
}

/// The source, coloured. What cannot be parsed, or is too large, is shown without colours.
pub(super) fn highlight(text: &str, language: Language) -> Source {
    let mut source = Source::plain(text);
    let configuration = match language {
        Language::Cuda => CUDA.as_ref(),
        Language::Python => PYTHON.as_ref(),
    };
    let shown = source.shown();
    if let Some(configuration) = configuration.filter(|_| is_colourable(&shown)) {
        for (line, pieces) in source.lines.iter_mut().zip(pieces_in_time(&shown, configuration)) {
            line.pieces = pieces;
        }
    }
    source
}

/// Returns whether a text is of a kind for which colours are worth their time.
fn is_colourable(text: &str) -> bool {
    let (mut open, mut deepest) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    text.len() <= MAX_COLOURED_BYTES && deepest <= MAX_OPEN_BRACKETS
}

/// The coloured pieces, as far as they are found in time.
fn pieces_in_time(text: &str, configuration: &HighlightConfiguration) -> Vec<Vec<Piece>> {
    let given_up = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (done, waits) = mpsc::channel::<()>();
        let given_up = &given_up;
        scope.spawn(move || {
            // Ends at once when the other side is gone.
            if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                given_up.store(1, Ordering::Relaxed);
            }
        });
        let pieces = pieces(text, configuration, given_up);
        drop(done);
        pieces
    })
}

/// The coloured pieces of each line. Neighbours of one class are one piece.
fn pieces(text: &str, configuration: &HighlightConfiguration, given_up: &AtomicUsize) -> Vec<Vec<Piece>> {
    let mut lines: Vec<Vec<Piece>> = vec![Vec::new()];
    let mut line_start = 0_usize;
    let mut open: Vec<Highlight> = Vec::new();
    let mut highlighter = Highlighter::new();
    let Ok(events) = highlighter.highlight(configuration, text.as_bytes(), None, Some(given_up), |_| None) else {
        return Vec::new();
    };
    for event in events {
        match event {
            Ok(HighlightEvent::HighlightStart(highlight)) => open.push(highlight),
            Ok(HighlightEvent::HighlightEnd) => {
                open.pop();
            }
            Ok(HighlightEvent::Source { start, end }) => {
                let class = open.last().and_then(|highlight| CLASSES.get(highlight.0)).and_then(|(_, class)| *class);
                let mut from = start;
                for part in text.get(start..end).unwrap_or_default().split_inclusive('\n') {
                    let to = from + part.len();
                    let shown_to = to - usize::from(part.ends_with('\n'));
                    if let (Some(class), Some(line)) = (class, lines.last_mut()) {
                        push(line, (from - line_start)..(shown_to - line_start), class);
                    }
                    if part.ends_with('\n') {
                        lines.push(Vec::new());
                        line_start = to;
                    }
                    from = to;
                }
            }
            // A grammar that gives up leaves the rest without colours.
            Err(_) => break,
        }
    }
    lines
}

fn push(line: &mut Vec<Piece>, range: std::ops::Range<usize>, class: &'static str) {
    if range.is_empty() {
        return;
    }
    match line.last_mut() {
        Some((last, known)) if *known == class && last.end == range.start => last.end = range.end,
        _ => line.push((range, class)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(text: &str, language: Language, word: &str) -> Option<&'static str> {
        let source = highlight(text, language);
        source.lines.iter().find_map(|line| {
            let at = line.text.find(word)?;
            line.pieces.iter().find(|(range, _)| range.contains(&at)).map(|(_, class)| *class)
        })
    }

    const PROGRAM: &str = "// saxpy\n__global__ void __launch_bounds__(256) saxpy(float a, const float *x) {\n    __shared__ float tile[32];\n    \
        int i = blockIdx.x * 256;\n    char c = 'x';\n    return;\n}\nvoid run() { saxpy<<<1, 256>>>(2.0f, nullptr); }\n";

    #[test]
    fn words_of_cuda_have_their_colours() {
        let expected = [
            ("// saxpy", Some("h-c")),
            ("__global__", Some("h-k")),
            ("__launch_bounds__", Some("h-k")),
            ("__shared__", Some("h-k")),
            ("float", Some("h-t")),
            ("blockIdx", Some("h-b")),
            ("256;", Some("h-n")),
            ("'x'", Some("h-s")),
            ("<<<", Some("h-l")),
            ("return", Some("h-k")),
            ("tile", None),
        ];
        for (word, class) in expected {
            assert_eq!(class_of(PROGRAM, Language::Cuda, word), class, "{word}");
        }
    }

    #[test]
    fn python_has_its_colours() {
        let program =
            "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x  # same\n";
        assert_eq!(Language::of_program(program), Language::Python);
        assert_eq!(class_of(program, Language::Python, "class"), Some("h-k"));
        assert_eq!(class_of(program, Language::Python, "# same"), Some("h-c"));
    }

    #[test]
    fn colours_lie_within_their_lines_whatever_the_text_is() {
        for text in
            ["", "\n\n", "/* open\n\u{e9}\u{e9}", "\"a\\\nb\"", "\u{0}\u{1}<<<<<<", "é\r\né\r\n", "#define X \\\n 1\n"]
        {
            for line in highlight(text, Language::Cuda).lines {
                for (range, _) in &line.pieces {
                    assert!(line.text.get(range.clone()).is_some_and(|piece| !piece.is_empty()), "{text:?} {line:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_nested_without_end_is_shown_in_time() {
        let many = |word: &str| word.repeat(200_000 / word.len());
        for text in [
            many("(\n"),
            many("{\n"),
            many("a<\n"),
            many("f<<<\n"),
            many("class A,\n"),
            many("#if x\n"),
            many("\"\n'\n"),
        ] {
            for language in [Language::Cuda, Language::Python] {
                let begun = std::time::Instant::now();
                let source = highlight(&text, language);
                assert!(begun.elapsed() < Duration::from_mins(1), "{:?} for {:?}", begun.elapsed(), &text[..8]);
                assert_eq!(source.lines.first().map(|line| line.text.as_str()), text.lines().next());
            }
        }
    }

    #[test]
    fn what_is_too_large_is_shown_without_colours() {
        let source = highlight(&"int a_longer_name = 1;\n".repeat(15_000), Language::Cuda);
        assert!(source.lines.iter().all(|line| line.pieces.is_empty()));
    }
}
