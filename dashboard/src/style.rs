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
    fn every_property_that_is_used_is_defined() {
        let names = SHEET.split("var(").skip(1).filter_map(|rest| rest.split([')', ',']).next());
        for name in names {
            assert!(SHEET.contains(&format!("{name}:")), "{name}");
        }
    }
}
