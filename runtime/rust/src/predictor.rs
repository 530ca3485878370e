//! A model that answers.

use crate::ffi::PredictorHandle;
use crate::{Options, Result, Spec, Tensor, Tensors};
use std::path::Path;

/// A model file, or a predict job of a bundle; called by any number of threads.
pub struct Predictor {
    handle: PredictorHandle,
}

impl std::fmt::Debug for Predictor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Predictor")
            .field("feeds", &self.feeds())
            .finish_non_exhaustive()
    }
}

impl Predictor {
    /// Open a model file, or the first predict job of a bundle.
    pub fn open(model_or_bundle: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let handle = PredictorHandle::open(model_or_bundle.as_ref(), None, options)?;
        Ok(Predictor { handle })
    }

    /// Open a predict job of a bundle by its name.
    pub fn open_job(bundle: impl AsRef<Path>, job: &str, options: &Options) -> Result<Self> {
        let handle = PredictorHandle::open(bundle.as_ref(), Some(job), options)?;
        Ok(Predictor { handle })
    }

    /// What it takes.
    pub fn feeds(&self) -> Vec<Spec<'_>> {
        self.handle.feeds()
    }

    /// What it gives.
    pub fn results(&self) -> Vec<Spec<'_>> {
        self.handle.results()
    }

    /// The results for these feeds, which come by place or by name, each once.
    pub fn run(&self, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        let mut results = Tensors::new();
        self.run_into(feeds, &mut results)?;
        Ok(results)
    }

    /// The same into memory that is used again.
    pub fn run_into(&self, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        self.handle.run(feeds, results)
    }

    /// While stopped, calls of all threads end, or do not begin, with [`crate::Kind::Stopped`].
    pub fn stop(&self, stopped: bool) {
        self.handle.stop(stopped);
    }
}
