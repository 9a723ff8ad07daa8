//! What the deserializer says about a value of the wrong kind, in words for people who never saw a line of Rust.

/// What stands for one of several alternatives.
const KNOWN_WORD: &str = "one of the known words in quotation marks";

/// The same message in plain words. What is not understood stays as it is: a clumsy message is better than none.
pub(super) fn for_people(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{field} is missing");
    }
    if message == "wanted string or table" {
        return format!("{KNOWN_WORD} is wanted");
    }
    let found_and_wanted = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix))
        .and_then(|rest| rest.rsplit_once(", expected "));
    match found_and_wanted {
        Some((found, wanted)) => {
            format!("{} cannot stand here: {} is wanted", what_is_there(found), what_is_wanted(wanted))
        }
        None => message.to_owned(),
    }
}

fn what_is_there(found: &str) -> String {
    // The kind, and the value behind it where the message has one.
    for (kind, word) in [("integer ", ""), ("floating point ", ""), ("boolean ", ""), ("string ", "the text ")] {
        if let Some(value) = found.strip_prefix(kind) {
            return format!("{word}{value}");
        }
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table `{ ... }`".to_owned(),
        other => other.to_owned(),
    }
}

fn what_is_wanted(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => whole_number(wanted),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a character" => "text in quotation marks",
        "a boolean" | "bool" => "true or false",
        "a sequence" => "a list `[ ... ]`",
        "a map" => "a table `{ ... }`",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "a table `{ ... }`",
        other if other.starts_with("enum ") || other == "variant identifier" => KNOWN_WORD,
        other => other,
    }
}

/// Describes an integer type. The description of a small type includes its range, which a user may exceed by mistake.
fn whole_number(of: &str) -> &'static str {
    match of {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        _ => "a whole number from 0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        assert_eq!(for_people("unbalanced brackets"), "unbalanced brackets");
        assert_eq!(for_people("invalid type: moon, expected cheese"), "moon cannot stand here: cheese is wanted");
    }

    #[test]
    fn a_text_that_holds_the_words_of_the_message_confuses_nothing() {
        assert_eq!(
            for_people("invalid type: string \"a, expected b\", expected u32"),
            "the text \"a, expected b\" cannot stand here: a whole number from 0 to 4294967295 is wanted"
        );
    }
}
