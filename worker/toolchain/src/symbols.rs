//! Which symbols a built library offers and needs, read from the file without running anything.

use object::{Object, ObjectSymbol};

/// Maximum number of names of each kind that are kept.
pub const MAX_SYMBOLS: usize = 4_096;

/// Functions of the scalar mathematics library: one call for one number.
const SCALAR_MATH: [&str; 32] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf", "erfc", "exp",
    "exp10", "exp2", "expm1", "floor", "fmod", "hypot", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "pow",
    "round", "sin", "sinh", "tan", "tanh",
];

/// The dynamic symbols of a library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Symbols {
    /// Defined and visible.
    pub exported: Vec<String>,
    /// Needed from elsewhere.
    pub needed: Vec<String>,
}

/// A file that is no library.
#[derive(Debug, thiserror::Error)]
#[error("the compiler's result is no shared library")]
pub struct NoLibrary(#[source] object::Error);

impl Symbols {
    /// Reads the dynamic symbols of a library.
    pub fn read(library: &[u8]) -> Result<Self, NoLibrary> {
        let file = object::File::parse(library).map_err(NoLibrary)?;
        let mut symbols = Self::default();
        for symbol in file.dynamic_symbols() {
            let Ok(name) = symbol.name() else { continue };
            let names = if symbol.is_undefined() { &mut symbols.needed } else { &mut symbols.exported };
            if !name.is_empty() && names.len() < MAX_SYMBOLS {
                names.push(name.to_owned());
            }
        }
        Ok(symbols)
    }

    /// Returns whether this entry point is there.
    #[must_use]
    pub fn exports(&self, name: &str) -> bool {
        self.exported.iter().any(|exported| exported == name)
    }

    /// The functions of the scalar mathematics library that the program calls, sorted.
    #[must_use]
    pub fn scalar_math_calls(&self) -> Vec<String> {
        let mut calls: Vec<String> = self.needed.iter().filter(|name| is_scalar_math(name)).cloned().collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    }
}

/// `expf` and `exp` both are; `__expf_finite` of old C libraries too.
fn is_scalar_math(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let name = name.strip_suffix("_finite").unwrap_or(name);
    let is = |name: &str| SCALAR_MATH.contains(&name);
    is(name) || name.strip_suffix(['f', 'l']).is_some_and(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_mathematics_is_told_apart_from_other_functions() {
        let needed =
            ["tanhf", "expf", "exp", "__expf_finite", "memcpy", "printf", "_ZSt4cout", "_ZGVdN8v_expf", "free"];
        let symbols = Symbols { needed: needed.map(str::to_owned).to_vec(), exported: Vec::new() };
        assert_eq!(symbols.scalar_math_calls(), ["__expf_finite", "exp", "expf", "tanhf"]);
    }

    #[test]
    fn a_text_is_no_library() {
        assert!(Symbols::read(b"ns_run").is_err());
    }
}
