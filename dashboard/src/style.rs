//! The stylesheet: parts in the order in which they build on each other, joined by the compiler.

/// All of it.
pub(crate) const SHEET: &str = concat!(
    include_str!("style/base.css"),
    include_str!("style/shell.css"),
    include_str!("style/components.css"),
    include_str!("style/charts.css"),
    include_str!("style/source.css"),
    include_str!("style/attempt.css"),
    include_str!("style/team.css"),
    include_str!("style/forms.css"),
    include_str!("style/print.css"),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stylesheet_loads_nothing_from_other_sites() {
        for foreign in ["@import", "url(", "http:", "https:", "@font-face"] {
            assert!(!SHEET.contains(foreign), "{foreign}");
        }
        assert_eq!(SHEET.matches('{').count(), SHEET.matches('}').count(), "braces are balanced");
    }

    #[test]
    fn words_in_cells_are_not_broken_and_boxes_that_scroll_say_so() {
        let rules = |selector: &str| -> String {
            let rules = SHEET.lines().filter(|line| line.split('{').next().is_some_and(|of| of.contains(selector)));
            rules.collect()
        };
        assert!(!rules("td code").contains("anywhere"), "{}", rules("td code"));
        for selector in [".scroll,", ".plot-scroll"] {
            let rules = rules(selector);
            assert!(rules.contains("no-repeat local") && rules.contains("var(--shadow)"), "{selector}: {rules}");
        }
        assert!(rules(".campaigns, .tasks").contains("text-overflow: ellipsis"));
    }

    #[test]
    fn every_property_that_is_used_is_defined() {
        let names = SHEET.split("var(").skip(1).filter_map(|rest| rest.split([')', ',']).next());
        for name in names {
            assert!(SHEET.contains(&format!("{name}:")), "{name}");
        }
    }
}
