//! Texts with places to be filled.

/// Fills each place once, from the front: what was filled in is not looked at again, whatever it holds.
pub(super) fn fill(template: &str, filled: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((at, place, value)) =
        filled.iter().filter_map(|(place, value)| Some((rest.find(place)?, *place, value))).min_by_key(|(at, ..)| *at)
    {
        text.push_str(&rest[..at]);
        text.push_str(value);
        rest = &rest[at + place.len()..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_holds_is_no_place_to_be_filled() {
        let filled = [("@@A@@", "1 @@B@@".to_owned()), ("@@B@@", "2".to_owned())];
        assert_eq!(fill("x @@A@@ y @@B@@ z", &filled), "x 1 @@B@@ y 2 z");
    }
}
