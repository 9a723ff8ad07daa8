//! Rules for programs in Python: a file with a class `ModelNew`, and the CUDA that it builds.

mod literal;
mod names;
mod tree;

use nightshift_protocol::verdict::Finding;
use tree_sitter::{Node, Parser, Tree};

use self::literal::Literal;
use self::names::Names;
use self::tree::{line_of, text, walk};
use super::cpp;
use super::lexer;
use super::prebuilt::{self, EncodedBytes, Loader};
use super::report::{finding, warning};
use super::strip::{self, strip_comments_and_strings};
use super::words;

/// Signs that a text is C++ or CUDA.
const CODE_SIGNS: [&str; 9] = [
    "#include",
    "#define",
    "__global__",
    "__device__",
    "torch::Tensor",
    "at::Tensor",
    "PYBIND11_MODULE",
    "asm(",
    "asm volatile",
];
/// Functions that build extensions.
const BUILDERS: [&str; 2] = ["torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load"];
/// Reasons of warnings.
const BUILDS_UNSEEN: &str = "what is built here does not stand in this file as a text, so readers cannot see the kernels: give \
                             `load_inline` string literals";
const INHERITS: &str = "the program inherits from `Model`, the class of the reference, which it cannot reach: write the modules \
                        and kernels into `ModelNew`";
/// Modules of PyTorch whose settings a program may change for itself.
const SETTINGS: [&str; 5] =
    ["torch.backends", "torch._dynamo.config", "torch._inductor.config", "torch.autograd", "os.environ"];

/// Longest text of one word that stays in a stripped program, in bytes.
const MAX_WORD_BYTES: usize = 48;

/// Returns the findings of a program. A syntax error is left to the build, which names it with its line.
pub(super) fn findings(source: &str) -> Vec<Finding> {
    let Some(tree) = parse(source) else { return Vec::new() };
    let mut screen = Screen { source, names: Names::of(&tree, source), ..Screen::default() };
    walk(tree.root_node(), |node, parent| screen.visit(node, parent));
    screen.finished()
}

/// Returns the source without comments and without the contents of texts; C++ and CUDA stay without theirs. Texts of one word stay:
/// keys of dictionaries and names of kernels say no more than names of variables. Lines keep their numbers.
pub(super) fn stripped(source: &str) -> String {
    let Some(tree) = parse(source) else { return String::new() };
    rewritten(&tree, source, |node| {
        let literal = Literal::of(node, source);
        let written = text(node, source);
        if is_word(&literal.text) && written.trim_matches(['"', '\'']) == literal.text {
            return written.to_owned();
        }
        let code = is_code(&literal.text).then(|| strip_comments_and_strings(&literal.text));
        literal.rewritten(code.as_deref())
    })
}

/// Returns the source without comments, blank lines and blanks at the ends of lines, and C++ and CUDA without comments and blanks.
pub(super) fn without_comments(source: &str) -> String {
    let Some(tree) = parse(source) else { return source.to_owned() };
    let out = rewritten(&tree, source, |node| {
        let literal = Literal::of(node, source).text;
        if is_code(&literal) { strip::without_comments(&literal) } else { text(node, source).to_owned() }
    });
    out.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns the source without comments, and with other text for each string.
fn rewritten<'t>(tree: &'t Tree, source: &str, mut string: impl FnMut(Node<'t>) -> String) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    walk(tree.root_node(), |node, _| {
        let range = node.byte_range();
        if range.start < at || !matches!(node.kind(), "comment" | "string" | "concatenated_string") {
            return;
        }
        out.push_str(source.get(at..range.start).unwrap_or(""));
        at = range.end;
        if node.kind() != "comment" {
            out.push_str(&string(node));
        }
    });
    out.push_str(source.get(at..).unwrap_or(""));
    out
}

fn parse(source: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(source, None)
}

/// Whether a text could be the name of a variable, with dots between parts.
fn is_word(text: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    text.len() <= MAX_WORD_BYTES && text.split('.').all(is_name)
}

fn is_code(text: &str) -> bool {
    CODE_SIGNS.iter().any(|sign| text.contains(sign))
}

#[derive(Default)]
struct Screen<'a> {
    source: &'a str,
    names: Names,
    found: Vec<Finding>,
    loader: Option<Loader>,
    encoded: EncodedBytes,
    /// Where the last literal ends, in bytes.
    read_until: usize,
    /// Where extensions are built.
    builds_at: Option<u32>,
    has_code: bool,
}

impl Screen<'_> {
    fn visit(&mut self, node: Node<'_>, parent: Option<Node<'_>>) {
        match node.kind() {
            // Parts of a literal were read with it.
            "string" | "concatenated_string" if node.start_byte() >= self.read_until => {
                self.read_until = node.end_byte();
                self.literal(node);
            }
            "identifier" | "attribute" => parent.into_iter().for_each(|parent| self.name(node, parent)),
            "list" | "tuple" | "set" => self.integers(node),
            "class_definition" => self.class(node),
            "assignment" => self.assignment(node),
            _ => {}
        }
    }

    fn literal(&mut self, node: Node<'_>) {
        let literal = Literal::of(node, self.source);
        if !is_code(&literal.text) {
            self.encoded.add_literal(literal.units.iter().copied(), line_of(node));
            return;
        }
        self.has_code = true;
        let scan = cpp::scan(&lexer::canonical(&literal.text));
        self.found.extend(scan.findings.into_iter().map(|mut finding| {
            finding.line = finding.line.map(|line| literal.line_in_file(line));
            finding
        }));
        self.encoded.merge(scan.encoded, |line| literal.line_in_file(line));
        if self.loader.is_none() {
            self.loader = scan.loader.map(|loader| Loader { line: literal.line_in_file(loader.line), ..loader });
        }
    }

    fn name(&mut self, node: Node<'_>, parent: Node<'_>) {
        let Some(path) = self.names.used(node, parent, self.source) else { return };
        let line = line_of(node);
        if BUILDERS.contains(&path.as_str()) {
            self.builds_at.get_or_insert(line);
        }
        let Some(word) = words::of_python(&path) else { return };
        self.found.push(finding(word.code, word.severity, word.message(&path), line));
        if word.loads && self.loader.is_none() {
            self.loader = Some(Loader { name: path, line });
        }
    }

    fn integers(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let integers = node.named_children(&mut cursor).filter(|child| child.kind() == "integer");
        let (count, digits) =
            integers.fold((0, 0), |(count, digits), child| (count + 1, digits + child.byte_range().len()));
        self.encoded.add_integers(count, digits, line_of(node));
    }

    fn class(&mut self, node: Node<'_>) {
        let Some(bases) = node.child_by_field_name("superclasses") else { return };
        let mut cursor = bases.walk();
        let inherits = bases.named_children(&mut cursor).any(|base| text(base, self.source) == "Model");
        if inherits {
            self.found.push(warning("uses_reference", INHERITS, line_of(node)));
        }
    }

    /// Finds a new value for an attribute of an imported module.
    fn assignment(&mut self, node: Node<'_>) {
        let Some(target) = node.child_by_field_name("left").filter(|left| left.kind() == "attribute") else { return };
        let Some(path) = self.names.imported(target, self.source) else { return };
        if !SETTINGS.iter().any(|settings| path.starts_with(settings)) {
            let message = format!(
                "`{path}` belongs to an imported module and gets a new value: call what is needed by its own name"
            );
            self.found.push(warning("patches", message, line_of(target)));
        }
    }

    fn finished(mut self) -> Vec<Finding> {
        self.found.extend(prebuilt::data(self.loader.as_ref(), self.encoded));
        if let Some(line) = self.builds_at.filter(|_| !self.has_code) {
            self.found.push(warning("hidden_source", BUILDS_UNSEEN, line));
        }
        self.found
    }
}
