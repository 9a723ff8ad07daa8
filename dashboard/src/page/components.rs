//! Components of pages: lists of facts, tables, collapsed sections, sections with a table of contents.

use leptos::prelude::*;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::machine::{ComputeMode, CoreFacts, MachineFacts, SandboxReport};
use nightshift_protocol::measurement::Interval;

use crate::chart::{Unit, float_u64, show};
use crate::format::{bytes, words};
use crate::markup::Markup;
use crate::source::DiffView;

/// Maximum number of rows of a table.
const MAX_ROWS: usize = 500;
/// Longest text in a cell, in characters.
const MAX_CELL_CHARS: usize = 2_000;

/// What lists of results over all campaigns say about precision policies, which they do not tell apart.
pub(crate) const ALL_POLICIES: &str =
    "Results of all precision policies stand next to each other; the page of an attempt names its policy.";

/// Shows a speedup, with its interval in a line of its own: for columns of lists.
pub(crate) fn stacked(speedup: Interval) -> AnyView {
    let range = format!("{:.2} to {:.2}", speedup.low, speedup.high);
    view! { {show(speedup.estimate, Unit::Times)}<span class="range">{range}</span> }.into_any()
}

/// Formats a factor, `1.53×`; an unknown one is a dash.
pub(crate) fn times(factor: Option<f64>) -> String {
    factor.map_or_else(|| "–".to_owned(), |factor| format!("{factor:.2}×"))
}

/// A fact, or a cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Words.
    Text(String),
    /// A number with its unit.
    Number(String),
    /// Words of less weight.
    Quiet(String),
    /// Code, in a monospaced font.
    Code(String),
    /// A label with its class.
    Tag(String, String),
    /// An address and its words.
    Link(String, String),
}

impl Cell {
    /// A number that may be missing.
    pub(crate) fn number(value: Option<f64>, unit: Unit) -> Self {
        Self::Number(value.map_or_else(String::new, |value| show(value, unit)))
    }

    fn words(&self) -> &str {
        match self {
            Self::Text(words)
            | Self::Number(words)
            | Self::Quiet(words)
            | Self::Code(words)
            | Self::Tag(_, words)
            | Self::Link(_, words) => words,
        }
    }

    fn write(&self, out: &mut Markup) {
        let bounded: String = self.words().chars().take(MAX_CELL_CHARS).collect();
        match self {
            Self::Text(_) | Self::Number(_) => out.text(&bounded),
            Self::Quiet(_) => out.tag("span").with("class", "quiet").text(&bounded),
            Self::Code(_) => out.tag("code").text(&bounded),
            Self::Tag(class, _) => out.tag("span").with("class", &format!("tag {class}")).text(&bounded),
            Self::Link(href, _) => out.tag("a").with("href", href).text(&bounded),
        }
    }
}

impl From<String> for Cell {
    fn from(words: String) -> Self {
        Self::Text(words)
    }
}

impl From<&str> for Cell {
    fn from(words: &str) -> Self {
        Self::Text(words.to_owned())
    }
}

impl From<Option<String>> for Cell {
    fn from(words: Option<String>) -> Self {
        Self::Text(words.unwrap_or_default())
    }
}

/// Renders a list of named facts. Facts without a value are left out.
pub(crate) fn facts(facts: &[(&'static str, Cell)]) -> AnyView {
    let mut out = Markup::new();
    out.tag("dl").around(|out| {
        for (name, cell) in facts.iter().filter(|(_, cell)| !cell.words().is_empty()) {
            out.tag("dt").text(name);
            out.tag("dd").around(|out| cell.write(out));
        }
    });
    out.block("facts")
}

/// Renders a table, and the number of omitted rows below it. Renders nothing without rows.
pub(crate) fn table(head: &[&str], rows: &[Vec<Cell>]) -> AnyView {
    if rows.is_empty() {
        return ().into_any();
    }
    let mut out = Markup::new();
    out.tag("div").with("class", "scroll").with("tabindex", "0").around(|out| {
        out.tag("table").around(|out| {
            out.tag("thead").around(|out| {
                out.tag("tr").around(|out| {
                    for (index, name) in head.iter().enumerate() {
                        let is_number = rows.iter().all(|row| matches!(row.get(index), Some(Cell::Number(_)) | None));
                        let class = if is_number { "number" } else { "" };
                        out.tag("th").with("scope", "col").with("class", class).text(name);
                    }
                });
            });
            out.tag("tbody").around(|out| {
                for row in rows.iter().take(MAX_ROWS) {
                    out.tag("tr").around(|out| {
                        for cell in row {
                            let class = if matches!(cell, Cell::Number(_)) { "number" } else { "" };
                            out.tag("td").with("class", class).around(|out| cell.write(out));
                        }
                    });
                }
            });
        });
    });
    if rows.len() > MAX_ROWS {
        out.tag("p").with("class", "quiet").text(&format!("and {} more rows", rows.len() - MAX_ROWS));
    }
    out.block("table")
}

/// Renders sentences below each other.
pub(crate) fn sentences(sentences: &[String]) -> AnyView {
    if sentences.is_empty() {
        return ().into_any();
    }
    let mut out = Markup::new();
    out.tag("ul").around(|out| {
        for words in sentences.iter().take(MAX_ROWS) {
            out.tag("li").text(&words.chars().take(MAX_CELL_CHARS).collect::<String>());
        }
    });
    out.block("sentences")
}

/// A text as it was written, at most that many bytes of it.
pub(crate) fn verbatim(text: &str, most_bytes: usize) -> AnyView {
    let shown = text.get(..text.floor_char_boundary(most_bytes)).unwrap_or_default();
    let rest = text.len() - shown.len();
    let mut out = Markup::new();
    out.tag("pre").with("class", "verbatim").with("tabindex", "0").text(shown);
    if rest > 0 {
        out.tag("p")
            .with("class", "quiet")
            .text(&format!("{rest} more bytes are not shown: download it to read them."));
    }
    out.block("text")
}

/// Marks content that only a served page can offer. A report is a file without a server, and omits it.
pub(crate) fn on_page_only(content: AnyView) -> AnyView {
    view! { <page-only>{content}</page-only> }.into_any()
}

/// Renders a section that is collapsed until the visitor opens it.
pub(crate) fn folded(summary: impl Into<String>, content: AnyView) -> AnyView {
    let summary = summary.into();
    view! { <details class="part"><summary>{summary}</summary>{content}</details> }.into_any()
}

/// Renders a link to another look of a page; the current one is marked.
pub(crate) fn chip(href: String, words: String, is_current: bool) -> AnyView {
    view! { <li><a href=href aria-current=is_current.then_some("true")>{words}</a></li> }.into_any()
}

/// Renders the layouts of a comparison of sources, each with its address.
pub(crate) fn layouts(current: DiffView, href: impl Fn(DiffView) -> String) -> AnyView {
    let links = [(DiffView::Inline, "One below the other"), (DiffView::Split, "Side by side")]
        .map(|(view, words)| chip(href(view), words.to_owned(), current == view));
    view! { <ul class="chips look">{links.into_iter().collect::<Vec<_>>()}</ul> }.into_any()
}

/// A section of a long page.
pub(crate) struct Section {
    /// Its anchor.
    pub(crate) id: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    /// What is in it.
    pub(crate) content: AnyView,
}

/// Renders sections below each other, with a table of contents if there are several.
pub(crate) fn sections(sections: Vec<Section>) -> AnyView {
    if sections.len() < 2 {
        return below_each_other(sections);
    }
    let entries = sections
        .iter()
        .map(|section| view! { <li><a href=format!("#{}", section.id)>{section.title}</a></li> })
        .collect::<Vec<_>>();
    view! {
        <nav class="contents" aria-label="On this page"><ul class="chips">{entries}</ul></nav>
        {below_each_other(sections)}
    }
    .into_any()
}

/// Sections below each other.
pub(crate) fn below_each_other(sections: Vec<Section>) -> AnyView {
    sections
        .into_iter()
        .map(|section| {
            let (heading, labelled_by) = (format!("{}-title", section.id), format!("{}-title", section.id));
            view! {
                <section id=section.id aria-labelledby=labelled_by>
                    <h2 id=heading>{section.title}</h2>
                    {section.content}
                </section>
            }
        })
        .collect::<Vec<_>>()
        .into_any()
}

/// Returns the address of an artifact.
pub(crate) fn artifact_href(hash: &ArtifactHash) -> String {
    format!("/api/v1/artifacts/{hash}")
}

/// An artifact to be downloaded.
pub(crate) fn artifact(hash: &ArtifactHash) -> Cell {
    Cell::Link(artifact_href(hash), hash.short().to_owned())
}

/// Nanoseconds with their unit.
pub(crate) fn nanoseconds(ns: u64) -> String {
    show(float_u64(ns), Unit::Nanoseconds)
}

/// Milliseconds with their unit.
pub(crate) fn milliseconds(ms: f64) -> String {
    show(ms * 1e6, Unit::Nanoseconds)
}

/// Renders the isolation of a process, one line for each mechanism.
pub(crate) fn isolation(report: &SandboxReport) -> AnyView {
    let rows: Vec<Vec<Cell>> = report
        .means
        .iter()
        .map(|means| {
            let state = if means.in_force { "in force" } else { "not in force" };
            vec![words(&means.name).into(), state.into(), Cell::Quiet(means.detail.clone())]
        })
        .collect();
    let reach = |isolated: bool| if isolated { "out of reach" } else { "within reach" };
    let sums = facts(&[
        ("Files outside", reach(report.isolates_files).into()),
        ("Network", reach(report.isolates_network).into()),
    ]);
    let means = table(&["Means", "State", "Detail"], &rows);
    view! { {sums}{means} }.into_any()
}

fn compute_mode(mode: ComputeMode) -> &'static str {
    match mode {
        ComputeMode::Shared => "shared",
        ComputeMode::ExclusiveProcess => "one process at a time",
        ComputeMode::Prohibited => "prohibited",
    }
}

/// First-level cache for data and second-level cache of a core.
fn caches(core: CoreFacts) -> String {
    [core.l1_bytes, core.l2_bytes].into_iter().flatten().map(bytes).collect::<Vec<_>>().join(", ")
}

/// The machine that something ran on.
pub(crate) fn machine(machine: &MachineFacts) -> AnyView {
    let compiler = |toolchain: &Option<nightshift_protocol::machine::Toolchain>| {
        Cell::from(toolchain.as_ref().map(|toolchain| format!("{} ({})", toolchain.version, toolchain.path)))
    };
    let host = facts(&[
        ("Host", machine.host.clone().into()),
        ("System", machine.os.clone().into()),
        ("Processor", format!("{}, {} cores", machine.processor, machine.cores).into()),
        ("Extensions", machine.features.join(", ").into()),
        ("Memory", bytes(machine.memory_bytes).into()),
        ("Last-level cache", machine.last_level_cache_bytes.map(bytes).into()),
        ("Caches of a core", machine.core.map_or_else(String::new, caches).into()),
        ("Threads of a core", machine.core.and_then(|core| core.threads).map(|threads| threads.to_string()).into()),
        ("C++ compiler", compiler(&machine.cpp_toolchain)),
        ("CUDA compiler", compiler(&machine.cuda_toolchain)),
    ]);
    let megahertz = |clock: Option<u32>| clock.map_or_else(String::new, |clock| format!("{clock} MHz"));
    let rows: Vec<Vec<Cell>> = machine
        .gpus
        .iter()
        .map(|gpu| {
            let errors = match (gpu.ecc, gpu.ecc_uncorrected) {
                (Some(true), Some(count)) => format!("on, {count} uncorrected"),
                (Some(true), None) => "on".to_owned(),
                (Some(false), _) => "off".to_owned(),
                (None, _) => String::new(),
            };
            let places = [gpu.pci_bus_id.clone(), gpu.mig.as_ref().map(|mig| format!("{mig:?}"))];
            vec![
                format!("{} (number {})", gpu.name, gpu.index).into(),
                Cell::Code(gpu.uuid.clone()),
                gpu.compute_capability.to_string().into(),
                Cell::Number(bytes(gpu.memory_bytes)),
                Cell::Number(
                    gpu.memory_bytes_per_s.map_or_else(String::new, |rate| show(float_u64(rate), Unit::BytesPerS)),
                ),
                Cell::Number(gpu.l2_bytes.map_or_else(String::new, bytes)),
                Cell::Number(gpu.multiprocessors.map_or_else(String::new, |count| count.to_string())),
                Cell::Number(megahertz(gpu.sm_clock_max_mhz)),
                Cell::Number(megahertz(gpu.memory_clock_max_mhz)),
                Cell::Number(gpu.power_limit_w.map_or_else(String::new, |watts| format!("{watts} W"))),
                errors.into(),
                format!("{}, CUDA {}", gpu.driver_version, gpu.cuda_driver_version).into(),
                gpu.compute_mode.map_or("", compute_mode).into(),
                gpu.persistence.map(|on| if on { "on" } else { "off" }.to_owned()).into(),
                Cell::Quiet(places.into_iter().flatten().collect::<Vec<_>>().join(", ")),
            ]
        })
        .collect();
    let gpus = table(
        &[
            "GPU",
            "Name of the device",
            "Capability",
            "Memory",
            "Bandwidth",
            "L2",
            "Multiprocessors",
            "Clock",
            "Memory clock",
            "Power limit",
            "Error correction",
            "Driver",
            "Compute mode",
            "Persistence",
            "Place",
        ],
        &rows,
    );
    let sandbox = folded(format!("Isolation it offers: {}", machine.sandbox.summary()), isolation(&machine.sandbox));
    view! { {host}{gpus}{sandbox} }.into_any()
}
