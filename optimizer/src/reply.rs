//! What a model's reply holds: exactly one program, edits of one, or exactly one JSON object. Anything else is named as what it is,
//! in words that the model can act on in its repair turn.
//!
//! Pure text work. Nothing here panics, whatever the text.

mod code;
mod edit;
mod fence;
mod json;
mod reasoning;
mod turn;

pub use self::code::{CodeProblem, MAX_SOURCE_BYTES, extract_code, extract_program};
pub use self::edit::{Edit, EditProblem, MAX_EDITS, apply_edits, holds_edits, parse_edits};
pub use self::json::{JsonProblem, extract_json};
pub use self::reasoning::strip_reasoning;
pub use self::turn::{extract_call, extract_turn_program, key_of};
