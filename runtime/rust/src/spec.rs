//! What models and states consist of.

use crate::DType;

/// A tensor of a model or the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// Its name in the model.
    pub name: &'a str,
    /// Its element type.
    pub dtype: DType,
    /// Its sizes; -1 is free.
    pub shape: &'a [i64],
    /// The name of each free size, `?` for one without; `None` for a fixed one.
    pub symbols: Vec<Option<&'a str>>,
    /// Of a state tensor: `variable`, `slot` or `counter`.
    pub role: Option<&'a str>,
    /// The variable that a slot belongs to.
    pub of: Option<&'a str>,
    /// True where a step writes it.
    pub trainable: bool,
    /// The whole numbers that a feed may hold, where something is known of them.
    pub range: Option<Range<'a>>,
}

/// The whole numbers that a feed may hold: from `least` on, below `below`, and `ignored`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// The least of them.
    pub least: i64,
    /// The first that is too large.
    pub below: i64,
    /// One that is allowed beside them.
    pub ignored: Option<i64>,
    /// The layer that reads them, or nothing.
    pub layer: &'a str,
}
