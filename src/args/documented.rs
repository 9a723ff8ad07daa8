//! Every command of the documentation is one that the program understands, with its options and their values.
#![expect(clippy::expect_used, reason = "a test stops at the first thing that is not as it should be")]

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Cli;

#[path = "../../tests/support/documented.rs"]
mod support;

/// How a command that lacks something ends: sentences name commands without all of their arguments.
const UNFINISHED: [ErrorKind; 4] = [
    ErrorKind::DisplayHelp,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
];

/// Returns why the program refuses a command line.
fn refusal<'a>(args: impl IntoIterator<Item = &'a str>) -> Option<String> {
    match Cli::try_parse_from(std::iter::once("nightshift").chain(args)) {
        Ok(_) => None,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(error) => Some(error.render().to_string()),
    }
}

#[test]
fn every_command_of_the_pages_is_understood() {
    let commands = support::commands();
    assert!(commands.len() > 50, "the pages have commands: {}", commands.len());
    let refused: Vec<String> = commands
        .iter()
        .filter_map(|command| {
            let reason = refusal(command.args.iter().map(String::as_str))?;
            Some(format!("{}: {}\n{reason}", command.page, command.line()))
        })
        .collect();
    assert!(refused.is_empty(), "commands that the program refuses:\n{}", refused.join("\n"));
}

/// Returns the commands that the sentences of a page name between backticks, such as "`nightshift pause ID`".
fn named_in_sentences(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut paragraphs = vec![String::new()];
    for line in support::text(page).lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced || line.is_empty() || line.starts_with('|') {
            paragraphs.push(String::new());
        }
        if !(fence || fenced) {
            let paragraph = paragraphs.last_mut().expect("it is never empty");
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    let spans = paragraphs.iter().flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    // Square brackets, bars and dots are the notation of several commands in one.
    spans
        .filter_map(|span| span.strip_prefix("nightshift "))
        .filter(|args| !args.contains(['[', '|', '…']))
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_that_sentences_name_are_understood_as_far_as_they_go() {
    let mut found = 0;
    let mut refused = Vec::new();
    for page in support::pages() {
        for args in named_in_sentences(&page) {
            found += 1;
            let args = args.replace("COMMAND", "run").replace("SHELL", "bash");
            let words = support::words(&args);
            match Cli::try_parse_from(std::iter::once("nightshift").chain(words.iter().map(String::as_str))) {
                Err(error) if !UNFINISHED.contains(&error.kind()) => refused.push(format!("{page}: {args}\n{error}")),
                _ => {}
            }
        }
    }
    assert!(found > 50, "sentences name commands: {found}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_refused() {
    for wrong in ["nosuch", "demo --nosuch", "list runs --limit 0", "run row_softmax", "verify row_softmax"] {
        assert!(refusal(wrong.split(' ')).is_some(), "{wrong}");
    }
}
