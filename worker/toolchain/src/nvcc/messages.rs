//! What nvcc and the programs behind it say, as data: the front end, the host's compiler, ptxas and the linkers.

use nightshift_protocol::measurement::CompilerMessage;

use crate::compiler_output;

/// Maximum number of lines of one message of the front end that are kept: candidates of an overload, a chain of instantiations.
const MAX_CONTINUED_LINES: usize = 6;

/// What is known about a build beside its output.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Name of the source's file in messages.
    pub file: &'a str,
    /// The source.
    pub source: &'a str,
    /// The assembly that the device compiler wrote, when it came so far: its lines lead back to the source.
    pub ptx: Option<&'a str>,
    /// The folder of the build, which is removed from every text.
    pub folder: &'a str,
}

/// The messages in nvcc's output: errors first, then warnings, then notes, each in the order of the output.
#[must_use]
pub fn messages(output: &str, context: &Context<'_>) -> Vec<CompilerMessage> {
    let mut found: Vec<CompilerMessage> = Vec::new();
    let mut rest = String::new();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let message = if let Some(mut message) = front_end(line) {
            let mut block = Vec::new();
            while let Some(next) = lines.next_if(|next| !next.trim().is_empty() && front_end(next).is_none()) {
                block.push(next);
            }
            complete(&mut message, &block, context);
            message
        } else if let Some(message) = tool(line, context) {
            message
        } else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let message = CompilerMessage { message: shorten(&message.message, context.folder), ..message };
        // Host and device are compiled from one source: what both passes say is said once.
        if !found.contains(&message) {
            found.push(message);
        }
    }
    for message in compiler_output::messages(&rest, context.folder) {
        if !found.contains(&message) {
            found.push(message);
        }
    }
    // ptxas closes with a line that adds nothing once it has said what is wrong.
    if found.iter().filter(|message| message.severity == "error").count() > 1 {
        found.retain(|message| !message.message.starts_with("Ptx assembly aborted due to errors"));
    }
    found.sort_by_key(|message| compiler_output::rank(&message.severity));
    found.truncate(compiler_output::MAX_MESSAGES);
    found
}

fn shorten(text: &str, folder: &str) -> String {
    compiler_output::bounded(&compiler_output::without_scratch(text, folder))
}

/// `FILE(LINE): error: TEXT`, `FILE(LINE): warning #177-D: TEXT`
fn front_end(line: &str) -> Option<CompilerMessage> {
    const GRADES: [(&str, &str); 7] = [
        ("catastrophic error", "error"),
        ("command-line error", "error"),
        ("internal error", "error"),
        ("error", "error"),
        ("warning", "warning"),
        ("remark", "note"),
        ("note", "note"),
    ];
    let (position, said) = line.split_once("): ")?;
    let (path, number) = position.rsplit_once('(')?;
    let line_number = number.parse().ok()?;
    if path.is_empty() || path.starts_with(char::is_whitespace) {
        return None;
    }
    let (word, severity) = GRADES.iter().find(|(word, _)| said.starts_with(word))?;
    let (code, text) = said.get(word.len()..)?.split_once(':')?;
    let is_code = code.is_empty() || code.trim_start().starts_with('#');
    is_code.then(|| CompilerMessage {
        file: compiler_output::file_name(path).to_owned(),
        line: line_number,
        column: 0,
        severity: (*severity).to_owned(),
        message: format!("{}{}", text.trim(), tag(code)),
    })
}

/// The number of a message, with which a source can ask for silence.
fn tag(code: &str) -> String {
    let code = code.trim();
    if code.is_empty() { String::new() } else { format!(" [{code}]") }
}

/// The lines after the head of a message: more text, then the line of the source, then a mark below its column.
fn complete(message: &mut CompilerMessage, block: &[&str], context: &Context<'_>) {
    let (marked, more) = match block {
        [more @ .., source, mark] if mark.trim() == "^" => (Some((*source, *mark)), more),
        _ => (None, block),
    };
    let (before, number) = match message.message.rsplit_once(" [#") {
        Some((before, number)) => (before.to_owned(), format!(" [#{number}")),
        None => (message.message.clone(), String::new()),
    };
    let more: Vec<&str> = more.iter().map(|line| line.trim()).take(MAX_CONTINUED_LINES).collect();
    if !more.is_empty() {
        message.message = format!("{before} {}{number}", more.join(" "));
    }
    if let Some((shown, mark)) = marked
        && message.file == context.file
        && let Some(column) = column(message.line, shown, mark, context.source)
    {
        message.column = column;
    }
}

/// The front end shows a line of the preprocessed source behind two spaces: its columns are those of the source when it
/// is the same line.
fn column(line: u32, shown: &str, mark: &str, source: &str) -> Option<u32> {
    let own = source.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let shown = shown.strip_prefix("  ")?;
    if shown.replace('\t', " ").trim_end() != own.replace('\t', " ").trim_end() {
        return None;
    }
    let offset = mark.find('^')?.checked_sub(2)?;
    u32::try_from(offset + 1).ok()
}

/// What a program of the toolkit says: `ptxas candidate.ptx, line 29; error   : TEXT`, `nvlink error   : TEXT`.
fn tool(line: &str, context: &Context<'_>) -> Option<CompilerMessage> {
    const TOOLS: [&str; 8] = ["ptxas", "nvlink", "nvcc", "cicc", "fatbinary", "cudafe++", "tileiras", "libnvvm"];
    const GRADES: [(&str, &str); 4] =
        [("error", "error"), ("fatal", "error"), ("warning", "warning"), ("info", "note")];
    let (said, text) = line.split_once(" : ").or_else(|| line.split_once(": "))?;
    let name = TOOLS.iter().find(|tool| said.starts_with(**tool))?;
    let after = said.get(name.len()..)?.strip_prefix(' ')?.trim();
    let (place, grade) = after.rsplit_once(';').map_or((None, after), |(place, grade)| (Some(place), grade.trim()));
    let (word, severity) = GRADES.iter().find(|(word, _)| grade == *word)?;
    // Resource usage is data, not a message; advice about lost performance is what a Coder wants to read.
    let severity = match (*word, text.contains("Potential Performance Loss")) {
        ("info", true) => "warning",
        ("info", false) => return None,
        _ => severity,
    };
    let assembly_line = place.and_then(|place| place.rsplit_once("line ")?.1.trim().parse().ok());
    let at = assembly_line.zip(context.ptx).and_then(|(line, ptx)| source_line(line, ptx, context.file));
    Some(CompilerMessage {
        file: at.map_or_else(|| (*name).to_owned(), |_| context.file.to_owned()),
        line: at.unwrap_or(0),
        column: 0,
        severity: severity.to_owned(),
        message: if at.is_some() { format!("{name}: {}", text.trim()) } else { text.trim().to_owned() },
    })
}

/// The source's line for a line of the assembly: the last `.loc FILE LINE COLUMN` before it, when it is of that file.
fn source_line(assembly_line: usize, ptx: &str, file: &str) -> Option<u32> {
    let before: Vec<&str> = ptx.lines().take(assembly_line).collect();
    let mut words = before.iter().rev().find_map(|line| line.trim().strip_prefix(".loc"))?.split_whitespace();
    let (number, line) = (words.next()?, words.next()?.parse().ok()?);
    let is_of_file = ptx.lines().filter_map(|line| line.trim().strip_prefix(".file")).any(|entry| {
        let entry = entry.trim();
        entry.strip_prefix(number).is_some_and(|path| {
            let path = path.trim().trim_start_matches('"');
            path.split('"').next().is_some_and(|path| compiler_output::file_name(path) == file)
        })
    });
    is_of_file.then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#include \"nightshift.h\"
#include <vector>
static __device__ int add(int a, int b);
__global__ void k(float *p) {
\tfoo(p);
    add(1);
    asm volatile(\"bogus.op;\");
}
";

    fn read(output: &str, ptx: Option<&str>) -> Vec<(String, u32, u32, String, String)> {
        messages(output, &Context { file: "candidate.cu", source: SOURCE, ptx, folder: "/scratch/build-7" })
            .into_iter()
            .map(|m| (m.file, m.line, m.column, m.severity, m.message))
            .collect()
    }

    fn told(file: &str, line: u32, column: u32, severity: &str, message: &str) -> (String, u32, u32, String, String) {
        (file.to_owned(), line, column, severity.to_owned(), message.to_owned())
    }

    #[test]
    fn errors_of_the_front_end_have_the_column_of_their_mark() {
        let output = "\
/nightshift/candidate.cu(5): error: identifier \"foo\" is undefined
  \tfoo(p);
   ^

/nightshift/candidate.cu(6): error: too few arguments in function call
      add(1);
           ^

/nightshift/candidate.cu(3): warning #114-D: function \"add\" was referenced but not defined
  static __attribute__((device)) int add(int a, int b);
                                     ^

Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"

2 errors detected in the compilation of \"candidate.cu\".
";
        assert_eq!(
            read(output, None),
            [
                told("candidate.cu", 5, 2, "error", "identifier \"foo\" is undefined"),
                told("candidate.cu", 6, 10, "error", "too few arguments in function call"),
                // The macro stands expanded in what is shown: a column of it would be none of the source's.
                told("candidate.cu", 3, 0, "warning", "function \"add\" was referenced but not defined [#114-D]"),
            ]
        );
    }

    #[test]
    fn the_lines_that_explain_a_message_belong_to_it() {
        let output = "\
/nightshift/candidate.cu(6): error: no instance of overloaded function \"add\" matches the argument list
            argument types are: (int)
      add(1);
      ^
/nightshift/candidate.cu(3): note #3326-D: function \"add(int, int)\" does not match because it takes 2 arguments
  static __device__ int add(int a, int b);
                        ^
          detected during instantiation of \"T twice(T) [with T=float]\" at line 9

";
        let found = read(output, None);
        assert_eq!(
            found.first(),
            Some(&told(
                "candidate.cu",
                6,
                5,
                "error",
                "no instance of overloaded function \"add\" matches the argument list argument types are: (int)"
            ))
        );
        assert!(found.get(1).is_some_and(|note| note.4.contains("detected during") && note.4.ends_with("[#3326-D]")));
    }

    #[test]
    fn what_both_passes_say_is_said_once() {
        let warning = "candidate.cu(5): warning #177-D: variable \"x\" was declared but never referenced\n\n";
        assert_eq!(read(&warning.repeat(2), None).len(), 1);
    }

    #[test]
    fn errors_of_the_assembler_lead_back_to_the_source() {
        let output = "ptxas keep/candidate.ptx, line 6; error   : Not a name of any known instruction: 'bogus'\n\
                      ptxas fatal   : Ptx assembly aborted due to errors\n";
        let ptx = "//\n.file 1 \"/nightshift/candidate.cu\"\n.loc 1 4 0\n.loc 1 7 5\n// begin inline asm\nbogus.op;\n";
        let message = "ptxas: Not a name of any known instruction: 'bogus'";
        assert_eq!(read(output, Some(ptx)), [told("candidate.cu", 7, 0, "error", message)]);
        let foreign = ptx.replace("candidate.cu", "mma.hpp");
        for ptx in [None, Some(foreign.as_str()), Some("")] {
            let message = "Not a name of any known instruction: 'bogus'";
            assert_eq!(read(output, ptx), [told("ptxas", 0, 0, "error", message)]);
        }
    }

    #[test]
    fn resources_and_lost_performance_are_told_and_usage_is_not() {
        let output = "\
ptxas error   : Entry function '_Z2k2Pf' uses too much shared data (0x61a80 bytes, 0x38c00 max)
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'k'
ptxas warning : Registers are spilled to local memory in function 'k', 220 bytes spill stores, 256 bytes spill loads
ptxas info    : 0 bytes gmem
ptxas info    : Used 10 registers, used 1 barriers, 400000 bytes smem
nvlink error   : Undefined reference to '_Z3addii' in '/scratch/build-7/keep/candidate.o'
nvcc error   : 'cicc' died due to signal 9 (Kill signal)
nvcc fatal   : Unsupported gpu architecture 'compute_70'
";
        let found = read(output, None);
        let severities: Vec<&str> = found.iter().map(|message| message.3.as_str()).collect();
        assert_eq!(severities, ["error", "error", "error", "error", "warning", "warning"], "{found:?}");
        assert!(found.iter().any(|message| message.4 == "Undefined reference to '_Z3addii' in 'keep/candidate.o'"));
        assert!(found.iter().any(|message| message.0 == "nvcc" && message.4.contains("cicc")));
        assert!(found.iter().all(|message| !message.4.contains("10 registers")));
    }

    #[test]
    fn the_hosts_compiler_and_linker_are_understood_too() {
        let output = "\
/nightshift/candidate.cu:2:10: fatal error: cublasLt.h: No such file or directory
    2 | #include <cublasLt.h>
compilation terminated.
/usr/bin/ld: keep/candidate.o: in function `ns_run':
candidate.cudafe1.cpp:(.text+0x1c4): undefined reference to `elsewhere(int)'
collect2: error: ld returned 1 exit status
";
        let found = read(output, None);
        assert_eq!(found.first(), Some(&told("candidate.cu", 2, 10, "error", "cublasLt.h: No such file or directory")));
        assert!(found.iter().any(|message| message.4 == "undefined reference to `elsewhere(int)'"), "{found:?}");
    }

    #[test]
    fn damaged_output_gives_fewer_messages_and_never_a_wrong_place() {
        for output in [
            "(5): error: x",
            "candidate.cu(five): error: x",
            "candidate.cu(5): errors: x",
            "candidate.cu(5)",
            "candidate.cu(99999999999999): error: x",
            "ptxas keep/candidate.ptx, line ; error",
            "ptxas",
            "\u{0}\u{fffd}): : ^",
            "candidate.cu(): error: ",
        ] {
            assert!(read(output, None).iter().all(|message| message.1 == 0), "{output}");
        }
        let cut = "candidate.cu(5): error: identifier \"foo\" is undefined\n  \tfoo(p);\n";
        assert_eq!(read(cut, None).first().map(|message| (message.1, message.2)), Some((5, 0)));
    }
}
