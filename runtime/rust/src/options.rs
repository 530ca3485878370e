//! How models are opened.

use crate::Optimization;
use std::path::PathBuf;

/// How models are opened, on the CPU; the default is the usual choice.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads of one operator; 0 is one per core.
    pub threads: i32,
    /// How far ONNX Runtime rewrites a model.
    pub optimization: Optimization,
    /// Refuse a step whose loss is not finite.
    pub finite_losses: bool,
    /// Open `x.ort` in place of `x.onnx`.
    pub ort_format: bool,
    /// The file of ONNX Runtime's library; otherwise the variable `FLOW2ONNX_ORT_LIBRARY`, or what
    /// the loader finds.
    pub library: Option<PathBuf>,
}
