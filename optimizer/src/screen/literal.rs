//! Escape sequences of string literals, as far as C++ and Python agree on them.

/// A character of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A character that stands in the source itself.
    Plain(char),
    /// A character that a named escape stands for, for example `\n`.
    Named(char),
    /// A character that is written as a number, for example `\x7f`.
    Numeric(char),
    /// A backslash at the end of a line: the literal continues on the next line.
    Continuation,
}

/// Decodes the text between the quotes of a literal that is not raw.
pub(super) fn units(text: &str) -> Vec<Unit> {
    let mut units = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = after;
        let Some(escaped) = (c == '\\').then(|| after.chars().next()).flatten() else {
            units.push(Unit::Plain(c));
            continue;
        };
        rest = &after[escaped.len_utf8()..];
        // The digits of an octal number begin at once, those of others behind a letter.
        let (digits, radix, most) = match escaped {
            'x' => (rest, 16, 2),
            'u' => (rest, 16, 4),
            'U' => (rest, 16, 8),
            '0'..='7' => (after, 8, 3),
            _ => ("", 0, 0),
        };
        if radix > 0 {
            let length = digits.chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
            let value = u32::from_str_radix(&digits[..length], radix).ok().and_then(char::from_u32);
            rest = &digits[length..];
            units.push(Unit::Numeric(value.unwrap_or(char::REPLACEMENT_CHARACTER)));
            continue;
        }
        match escaped {
            '\n' => units.push(Unit::Continuation),
            'n' => units.push(Unit::Named('\n')),
            't' => units.push(Unit::Named('\t')),
            'r' => units.push(Unit::Named('\r')),
            '\\' | '\'' | '"' => units.push(Unit::Named(escaped)),
            _ => units.extend([Unit::Plain('\\'), Unit::Plain(escaped)]),
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_their_characters() {
        let text: String = units("a\\n\\x2e\\056\\u0041\\\\\\d\\\nb\\")
            .into_iter()
            .filter_map(|unit| match unit {
                Unit::Plain(c) | Unit::Named(c) | Unit::Numeric(c) => Some(c),
                Unit::Continuation => None,
            })
            .collect();
        assert_eq!(text, "a\n..A\\\\db\\");
    }
}
