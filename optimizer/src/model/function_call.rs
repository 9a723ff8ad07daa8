//! A call of a function in a reply.

/// A call of a function in a reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FunctionCall {
    /// Name of the function, as the model wrote it.
    pub name: String,
    /// Its arguments, as the model wrote them: JSON, unless the reply was cut off.
    pub arguments: String,
}
