//! The groups of the commands in the main help.

use std::fmt::Write as _;

use clap::Subcommand;

use super::Command;

/// The commands by what they are for. A test holds that each visible command is in one group.
const GROUPS: &[(&str, &[&str])] = &[
    ("Make programs faster", &["demo", "optimize", "run", "verify"]),
    ("Read results", &["list", "search", "show", "watch", "logs"]),
    (
        "Control campaigns and runs",
        &["resume", "pause", "cancel", "retry", "hint", "approve", "reject", "priority", "limits"],
    ),
    ("Agents and models outside", &["mcp", "agent", "requests", "handover"]),
    ("Servers and workers", &["serve", "work", "drain", "release", "token", "share"]),
    ("Import, export and delete", &["import", "export", "reward", "prune"]),
    ("Set up", &["doctor", "config", "prompts", "completions"]),
];

/// Returns the template of the main help: the commands in their groups, then the options.
pub(super) fn help_template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("nightshift"));
    let width = commands.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{heading}:");
        for command in names.iter().filter_map(|name| commands.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}  {about}", command.get_name());
        }
    }
    text.push_str("\nOptions:\n{options}\n\n`nightshift COMMAND --help` tells more about a command.");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_visible_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let visible: BTreeSet<&str> = visible.map(clap::Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), visible);
        assert_eq!(grouped.len(), visible.len(), "no command is in two groups");
    }

    #[test]
    fn the_main_help_has_the_groups_and_the_options() {
        let help = Cli::command().render_help().to_string();
        for (heading, names) in GROUPS {
            assert!(help.contains(&format!("\n{heading}:\n  {}", names[0])), "{help}");
        }
        assert!(help.contains("--data-dir"), "{help}");
    }
}
