//! The texts. Whatever runs in the page that shows one of them changes the title to `taken over`.

use serde_json::json;

/// A name, short enough to be filtered by: of a campaign, a task, a model. Markup, marks that turn the direction of writing, and a word without end.
pub(super) const NAME: &str = "</title></h1><script>document.title='taken over'</script>\"'><img src=x onerror=document.title='taken\u{a0}over'> \
     \u{202e}dlrow\u{2066} a_word_that_cannot_be_broken_and_goes_on_and_on_and_on";

/// Short texts: what could stand in any field.
pub(super) const TEXTS: [&str; 14] = [
    "</pre></code></textarea></style></script></svg></title><script>document.title='taken over'</script>",
    "\"><img src=x onerror=\"document.title='taken over'\"> ' onfocus='document.title=`taken over`' autofocus x='",
    "<svg/onload=document.title='taken&nbsp;over'><iframe srcdoc=\"<script>parent.document.title='taken over'</script>\"></iframe>",
    "<style>body{display:none}</style><base href=\"//elsewhere.invalid/\"><meta http-equiv=\"refresh\" content=\"0;url=/taken-over\">",
    "[a](javascript:document.title='taken over') ![b](//elsewhere.invalid/b.png) <javascript:alert(1)> {{7*7}} ${7*7} %s%n",
    "javascript:document.title='taken over'",
    "if (is_\u{202e}nimda\u{2066} == true) \u{2069}\u{202d} return; /*\u{202e} } \u{2066}if (x)\u{2069} \u{2066} begin */",
    "\u{5d0}\u{5d1}\u{5d2} \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{645}\u{631}\u{62d}\u{628}\u{627} 12.5 \u{200f}!\u{200e}\u{61c}",
    "\0\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}\u{b}\u{c}\r\u{e}\u{1a}\u{1b}[31mred\u{1b}[0m\u{1b}]8;;http://elsewhere.invalid\u{7}\u{7f}\u{80}\u{85}\u{9f}",
    "z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}\u{30b}\u{30c}\u{30d}\u{30e}\u{30f}\u{310}\u{311}\u{312}\u{313}\u{314}\u{315} \u{fdfd}\u{fdfd}\u{fdfd} \u{1242b}\u{1242b} \u{1f469}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "soft\u{ad}hyphen zero\u{200b}width\u{200c}joined\u{200d}mark\u{feff} \u{2028}line\u{2029}paragraph \u{e0041}\u{e0042}tags \u{fffe}\u{ffff} \u{3164}filler\u{115f}",
    "templates<std::integral_constant<unsigned_long,18446744073709551615ul>,std::integral_constant<unsigned_long,18446744073709551615ul>,std::integral_constant<unsigned_long,18446744073709551615ul>,std::integral_constant<unsigned_long,18446744073709551615ul>>",
    "",
    "   \n\n\t\n   ",
];

/// The line that is too long.
pub(super) const LONG_LINE_BYTES: usize = 10 << 20;
/// Lines of the source that has too many.
const LINES: usize = 100_000;
/// Number of brackets that are never closed.
const BRACKETS: usize = 20_000;
/// Headings of the reply that has too many.
const HEADINGS: usize = 3_000;

/// What was meant to be a program.
pub(super) fn sources() -> Vec<Vec<u8>> {
    let all = TEXTS.join("\n");
    let long_line = format!("int a; // {}\nint b;\n", "<b>x</b> ".repeat(LONG_LINE_BYTES / 9 + 1));
    vec![
        format!("#include \"nightshift.h\"\n// {all}\nextern \"C\" int ns_run() {{ return 0; }}\n").into_bytes(),
        no_text(),
        long_line.into_bytes(),
        "x = <script>;\n".repeat(LINES).into_bytes(),
        format!("int f() {}", "{ ( [ ".repeat(BRACKETS)).into_bytes(),
        format!("{}\n", TEXTS[7].repeat(200)).repeat(50).into_bytes(),
        format!("/* {} */\n", "no_place_to_break_".repeat(105)).repeat(200).into_bytes(),
        Vec::new(),
        b"one\r\ntwo\rthree\n\rfour\x0bfive\x0csix\xc2\x85seven\xe2\x80\xa8eight".to_vec(),
        "\t".repeat(1_500).into_bytes(),
    ]
}

/// Every byte there is, halves of surrogate pairs, forms that are too long, and characters that end too early.
fn no_text() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes.extend_from_slice(
        b"\n\xed\xa0\x80\xed\xbf\xbf\n\xc0\x80\xe0\x80\xaf\xf5\x90\x80\x80\n\xf0\x9f\x92\n\xff\xfe<\x00b\x00>\x00\n",
    );
    bytes.extend_from_slice(b"<scr\xc0ipt>document.title='taken over'</scr\xc0ipt>\n\xe2\x80");
    bytes
}

/// What a model could reply.
pub(super) fn replies() -> Vec<Vec<u8>> {
    let all = TEXTS.join("\n\n");
    let headings: Vec<String> =
        (0..HEADINGS).map(|number| format!("# {number} {}\ntext\n", TEXTS[number % 8])).collect();
    vec![
        format!("# <script>document.title='taken over'</script>\n\n{all}\n\n```cuda\n{all}\n").into_bytes(),
        headings.concat().into_bytes(),
        format!("{}\n", "</pre><script>document.title='taken over'</script>".repeat(LONG_LINE_BYTES / 50 + 1))
            .into_bytes(),
        no_text(),
        "`".repeat(300_000).into_bytes(),
        Vec::new(),
    ]
}

/// A trace of a device that does too much at once.
pub(super) fn trace(kernels: u32, streams: u32) -> Vec<u8> {
    let mut events = Vec::new();
    for stream in 0..streams {
        let name = TEXTS[usize::try_from(stream).unwrap_or(0) % TEXTS.len()];
        events.push(json!({ "ph": "M", "name": "thread_name", "pid": 2, "tid": stream, "args": { "name": name } }));
    }
    for kernel in 0..kernels {
        let name = TEXTS[usize::try_from(kernel).unwrap_or(0) % TEXTS.len()];
        events.push(json!({
            "ph": "X", "name": name, "cat": "kernel", "pid": 2, "tid": kernel % streams, "ts": f64::from(kernel) * 3.0,
            "dur": f64::from(kernel % 7), "args": { "__proto__": name },
        }));
    }
    events.push(
        json!({ "ph": "X", "name": "late", "cat": "kernel", "pid": 2, "tid": 0, "ts": 1e14, "dur": 1e14, "args": {} }),
    );
    events.push(json!({ "ph": "X", "name": "no time", "cat": "kernel", "pid": 2, "tid": 0, "ts": "soon", "dur": -1 }));
    json!({ "displayTimeUnit": "ns", "otherData": { "left_out": "18446744073709551615" }, "traceEvents": events })
        .to_string()
        .into_bytes()
}
