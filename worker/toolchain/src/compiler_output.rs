//! Parses the output of C++ compilers: messages of GCC, Clang, assembler and linker, and notes about loops.

use nightshift_protocol::measurement::{CompilerMessage, LoopNote};

/// Maximum number of messages of one build that are kept.
pub const MAX_MESSAGES: usize = 24;
/// Maximum length of a message, in characters.
pub const MAX_MESSAGE_CHARS: usize = 500;
/// Maximum number of loop notes of each kind.
pub const MAX_LOOP_NOTES: usize = 40;

/// Programs that speak about a build as a whole, without a position in a source.
const SPEAKERS: [&str; 14] = [
    "g++",
    "gcc",
    "c++",
    "cc",
    "cc1plus",
    "collect2",
    "lto1",
    "lto-wrapper",
    "as",
    "ld",
    "ld.lld",
    "ld.gold",
    "clang",
    "clang++",
];

/// The compiler's notes about loops of the program's own source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopNotes {
    /// Vectorized.
    pub vectorized: Vec<LoopNote>,
    /// Not vectorized, with the reason.
    pub missed: Vec<LoopNote>,
}

/// The messages in a compiler's output: errors first, then warnings, then notes, each in the order of the output.
///
/// `scratch` is the folder of the build; it is removed from every text, since it differs between two equal builds.
#[must_use]
pub fn messages(output: &str, scratch: &str) -> Vec<CompilerMessage> {
    let mut found: Vec<CompilerMessage> = Vec::new();
    for line in output.lines() {
        let line = without_scratch(line, scratch);
        let Some(message) = located(&line).or_else(|| spoken(&line)) else { continue };
        if !found.contains(&message) {
            found.push(message);
        }
    }
    // The linker's closing line adds nothing once it has said what is missing.
    if found.iter().any(|m| m.severity == "error" && m.file != "collect2") {
        found.retain(|m| m.file != "collect2");
    }
    found.sort_by_key(|m| rank(&m.severity));
    found.truncate(MAX_MESSAGES);
    found
}

/// The loop notes of GCC's `-fopt-info-vec-optimized-missed`, for the lines of the file of that name.
#[must_use]
pub fn gcc_loop_notes(text: &str, source: &str) -> LoopNotes {
    let mut notes = LoopNotes::default();
    let mut lines = text.lines().filter_map(position).peekable();
    while let Some((file, line, _, rest)) = lines.next() {
        if file != source {
            continue;
        }
        if let Some(message) = rest.strip_prefix("optimized:") {
            push_note(&mut notes.vectorized, line, message);
        } else if let Some(message) = rest.strip_prefix("missed:") {
            let message = message.trim();
            if message != "couldn't vectorize loop" {
                continue;
            }
            // The reason follows as a message of its own, often at the line of the statement that is in the way.
            let reason = lines.peek().and_then(|(_, _, _, next)| next.strip_prefix("missed:")).map(str::trim);
            match reason.filter(|reason| *reason != "couldn't vectorize loop") {
                Some(reason) => push_note(&mut notes.missed, line, reason),
                None => push_note(&mut notes.missed, line, message),
            }
        }
    }
    notes
}

/// The loop notes of Clang's `-Rpass=loop-vectorize -Rpass-analysis=loop-vectorize`, which it prints as remarks.
#[must_use]
pub fn clang_loop_notes(output: &str, source: &str) -> LoopNotes {
    let mut notes = LoopNotes::default();
    for (file, line, _, rest) in output.lines().filter_map(position) {
        let Some(remark) = rest.strip_prefix("remark:") else { continue };
        if file != source {
            continue;
        }
        let message = remark.rsplit_once(" [-Rpass").map_or(remark, |(message, _)| message).trim();
        if message.starts_with("vectorized loop") {
            push_note(&mut notes.vectorized, line, message);
        } else if let Some(reason) = message.strip_prefix("loop not vectorized") {
            let reason = reason.trim_start_matches(':').trim();
            if !reason.is_empty() {
                push_note(&mut notes.missed, line, reason);
            }
        }
    }
    notes
}

fn push_note(notes: &mut Vec<LoopNote>, line: u32, message: &str) {
    let note = LoopNote { line, message: bounded(message.trim()) };
    if notes.len() < MAX_LOOP_NOTES && !notes.contains(&note) {
        notes.push(note);
    }
}

/// `FILE:LINE[:COLUMN]: REST`, the file without its folders.
fn position(line: &str) -> Option<(&str, u32, u32, &str)> {
    let (path, rest) = line.split_once(':')?;
    if path.is_empty() || path.contains(char::is_whitespace) {
        return None;
    }
    let (number, rest) = rest.split_once(':')?;
    let line_number = number.parse().ok()?;
    let (column, rest) = match rest.split_once(':') {
        Some((column, after)) => match column.parse() {
            Ok(column) => (column, after),
            Err(_) => (0, rest),
        },
        None => (0, rest),
    };
    Some((file_name(path), line_number, column, rest.trim_start()))
}

/// A message with a position in a source.
fn located(line: &str) -> Option<CompilerMessage> {
    let (file, line, column, rest) = position(line)?;
    let (severity, message) = if rest == "required from here" || rest.starts_with("required from ") {
        // Instantiations are the only messages that point from a library's header into the program.
        ("note", rest)
    } else if rest.starts_with("undefined reference to ") || rest.starts_with("multiple definition of ") {
        ("error", rest)
    } else {
        graded(rest)?
    };
    Some(CompilerMessage {
        file: file.to_owned(),
        line,
        column,
        severity: severity.to_owned(),
        message: bounded(message),
    })
}

/// A message of a program of the toolchain about the build as a whole.
fn spoken(line: &str) -> Option<CompilerMessage> {
    let (speaker, rest) = line.split_once(": ")?;
    let speaker = file_name(speaker);
    let spoken = |severity: &str, message: &str| CompilerMessage {
        file: speaker.to_owned(),
        line: 0,
        column: 0,
        severity: severity.to_owned(),
        message: bounded(message),
    };
    if let Some(message) = linker_complaint(rest) {
        return Some(spoken("error", message));
    }
    let known = SPEAKERS.iter().any(|name| speaker == *name || is_versioned(speaker, name));
    let (severity, message) = graded(rest)?;
    known.then(|| spoken(severity, message))
}

/// Returns the message of a linker error that lacks the word `error`.
fn linker_complaint(rest: &str) -> Option<&str> {
    const COMPLAINTS: [&str; 6] = [
        "undefined reference to ",
        "cannot find ",
        "multiple definition of ",
        "final link failed",
        "undefined symbol: ",
        "relocation ",
    ];
    COMPLAINTS.iter().filter_map(|complaint| rest.find(complaint)).min().and_then(|start| rest.get(start..))
}

/// `x86_64-linux-gnu-g++-12` and `clang++-19` are `g++` and `clang++`.
fn is_versioned(speaker: &str, name: &str) -> bool {
    let base = speaker.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-');
    base == name || base.strip_suffix(name).is_some_and(|prefix| prefix.ends_with('-'))
}

fn graded(rest: &str) -> Option<(&'static str, &str)> {
    const GRADES: [(&str, &str); 9] = [
        ("fatal error: ", "error"),
        ("internal compiler error: ", "error"),
        ("error: ", "error"),
        ("Error: ", "error"),
        ("Fatal error: ", "error"),
        ("sorry, unimplemented: ", "error"),
        ("warning: ", "warning"),
        ("Warning: ", "warning"),
        ("note: ", "note"),
    ];
    let (word, severity) = GRADES.iter().find(|(word, _)| rest.starts_with(word))?;
    // The word stays where it says more than the severity does.
    let message = if word.contains("internal") { rest } else { rest.get(word.len()..)? };
    Some((severity, message.trim()))
}

pub(crate) fn rank(severity: &str) -> u8 {
    match severity {
        "error" => 0,
        "warning" => 1,
        _ => 2,
    }
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(crate) fn without_scratch(line: &str, scratch: &str) -> String {
    if scratch.is_empty() {
        return line.to_owned();
    }
    let folder = scratch.trim_end_matches('/');
    line.replace(&format!("{folder}/"), "").replace(folder, ".")
}

pub(crate) fn bounded(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: &str = "\
/scratch/7/candidate.cpp: In function 'int ns_run(void*, const ns_tensor*)':
/scratch/7/candidate.cpp:6:5: error: 'flot' was not declared in this scope; did you mean 'float'?
    6 |     flot x = 1;
      |     ^~~~
      |     float
/scratch/7/candidate.cpp:5:9: warning: unused variable 'unused' [-Wunused-variable]
In file included from /usr/include/c++/12/vector:64,
                 from /scratch/7/candidate.cpp:2:
/usr/include/c++/12/bits/stl_vector.h:1276:7: note:   conversion of argument 1 would be ill-formed:
/scratch/7/candidate.cpp: In instantiation of 'T twice(T) [with T = int]':
/scratch/7/candidate.cpp:8:10:   required from here
/scratch/7/candidate.cpp:3:47: error: request for member 'foo' in 'x', which is of non-class type 'int'
/scratch/7/candidate.cpp:3:47: error: request for member 'foo' in 'x', which is of non-class type 'int'
";

    fn told(message: &CompilerMessage) -> (&str, u32, u32, &str, &str) {
        (&message.file, message.line, message.column, &message.severity, &message.message)
    }

    #[test]
    fn errors_come_before_warnings_and_notes_and_lose_their_folders() {
        let messages = messages(ERRORS, "/scratch/7");
        let told: Vec<_> = messages.iter().map(told).collect();
        assert_eq!(
            told,
            [
                ("candidate.cpp", 6, 5, "error", "'flot' was not declared in this scope; did you mean 'float'?"),
                ("candidate.cpp", 3, 47, "error", "request for member 'foo' in 'x', which is of non-class type 'int'"),
                ("candidate.cpp", 5, 9, "warning", "unused variable 'unused' [-Wunused-variable]"),
                ("stl_vector.h", 1276, 7, "note", "conversion of argument 1 would be ill-formed:"),
                ("candidate.cpp", 8, 10, "note", "required from here"),
            ]
        );
    }

    #[test]
    fn a_missing_symbol_is_told_with_its_line_and_without_the_closing_line_of_the_linker() {
        let output = "/usr/bin/ld: /scratch/7/ccpkATk5.o: in function `ns_run':\n\
                      /scratch/7/candidate.cpp:4: undefined reference to `other'\n\
                      collect2: error: ld returned 1 exit status\n";
        let messages = messages(output, "/scratch/7/");
        assert_eq!(
            messages.iter().map(told).collect::<Vec<_>>(),
            [("candidate.cpp", 4, 0, "error", "undefined reference to `other'")]
        );
    }

    #[test]
    fn a_missing_symbol_without_line_information_is_told_too() {
        let output = "/usr/bin/ld: /tmp/ccu32s2r.o: in function `ns_run':\n\
                      <stdin>:(.text+0x5): undefined reference to `foo'\n\
                      collect2: error: ld returned 1 exit status\n";
        assert_eq!(
            messages(output, "").iter().map(told).collect::<Vec<_>>(),
            [("<stdin>:(.text+0x5)", 0, 0, "error", "undefined reference to `foo'")]
        );
    }

    #[test]
    fn linker_assembler_driver_and_compiler_crashes_are_errors() {
        let output = "/usr/bin/ld: cannot find -lcublas: No such file or directory\n\
                      candidate.cpp: Assembler messages:\n\
                      candidate.cpp:1: Error: no such instruction: `frobnicate %eax'\n\
                      g++-12: error: unrecognized command-line option '-std=c++99'; did you mean '-std=c++98'?\n\
                      x86_64-linux-gnu-g++-12: fatal error: Killed signal terminated program cc1plus\n\
                      cc1plus: internal compiler error: Segmentation fault\n\
                      ld.lld: error: undefined symbol: other\n\
                      compilation terminated.\n";
        assert_eq!(
            messages(output, "/scratch").iter().map(told).collect::<Vec<_>>(),
            [
                ("ld", 0, 0, "error", "cannot find -lcublas: No such file or directory"),
                ("candidate.cpp", 1, 0, "error", "no such instruction: `frobnicate %eax'"),
                ("g++-12", 0, 0, "error", "unrecognized command-line option '-std=c++99'; did you mean '-std=c++98'?"),
                ("x86_64-linux-gnu-g++-12", 0, 0, "error", "Killed signal terminated program cc1plus"),
                ("cc1plus", 0, 0, "error", "internal compiler error: Segmentation fault"),
                ("ld.lld", 0, 0, "error", "undefined symbol: other"),
            ]
        );
    }

    #[test]
    fn a_flood_of_messages_is_cut_and_the_error_survives() {
        let mut lines: Vec<String> = (1..500).map(|n| format!("candidate.cpp:{n}:1: warning: unused")).collect();
        lines.push(format!("candidate.cpp:1:1: error: {}", "ä".repeat(MAX_MESSAGE_CHARS * 2)));
        let messages = messages(&lines.join("\n"), "");
        assert_eq!(messages.len(), MAX_MESSAGES);
        assert_eq!(messages.first().map(|m| m.severity.as_str()), Some("error"));
        assert!(messages.iter().all(|m| m.message.chars().count() <= MAX_MESSAGE_CHARS + 1));
    }

    #[test]
    fn gcc_says_which_loops_it_vectorized_and_why_not() {
        let text = "\
candidate.cpp:13:27: missed: couldn't vectorize loop
/usr/include/c++/12/cmath:223:26: missed: statement clobbers memory: _57 = __builtin_expf (_28);
candidate.cpp:9:27: optimized: loop vectorized using 64 byte vectors
candidate.cpp:9:27: optimized:  loop versioned for vectorization because of possible aliasing
candidate.cpp:9:27: optimized: loop vectorized using 64 byte vectors
candidate.cpp:15:36: missed: couldn't vectorize loop
candidate.cpp:15:36: missed: not vectorized: number of iterations cannot be computed.
candidate.cpp:14:53: missed: not vectorized: no vectype for stmt: _29 = *_28;
 scalar_type: float
/usr/include/c++/12/cmath:223:26: optimized: loop vectorized using 64 byte vectors
";
        let notes = gcc_loop_notes(text, "candidate.cpp");
        let told = |notes: &[LoopNote]| notes.iter().map(|n| format!("{}: {}", n.line, n.message)).collect::<Vec<_>>();
        assert_eq!(
            told(&notes.vectorized),
            [
                "9: loop vectorized using 64 byte vectors",
                "9: loop versioned for vectorization because of possible aliasing"
            ]
        );
        assert_eq!(
            told(&notes.missed),
            [
                "13: statement clobbers memory: _57 = __builtin_expf (_28);",
                "15: not vectorized: number of iterations cannot be computed."
            ]
        );
    }

    #[test]
    fn clang_says_it_with_remarks() {
        let output = "\
candidate.cpp:9:5: remark: vectorized loop (vectorization width: 8, interleaved count: 4) [-Rpass=loop-vectorize]
candidate.cpp:13:5: remark: loop not vectorized: call instruction cannot be vectorized [-Rpass-analysis=loop-vectorize]
candidate.cpp:13:5: remark: loop not vectorized [-Rpass-missed=loop-vectorize]
/usr/include/c++/12/cmath:2:5: remark: vectorized loop (vectorization width: 8) [-Rpass=loop-vectorize]
";
        let notes = clang_loop_notes(output, "candidate.cpp");
        assert_eq!(notes.vectorized.iter().map(|n| n.line).collect::<Vec<_>>(), [9]);
        assert_eq!(notes.missed, [LoopNote { line: 13, message: "call instruction cannot be vectorized".to_owned() }]);
        assert!(messages(output, "").is_empty(), "remarks are no messages");
    }
}
