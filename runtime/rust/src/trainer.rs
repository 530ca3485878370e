//! A bundle's job with its state.

use crate::ffi::{Run, TrainerHandle};
use crate::{Options, Result, Spec, Tensor, Tensors};
use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Weak};

/// A bundle's job with its state; used by one thread at a time.
pub struct Trainer {
    handle: Arc<TrainerHandle>,
    alone: PhantomData<Cell<()>>, // not shared between threads
}

impl std::fmt::Debug for Trainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer")
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

impl Trainer {
    /// Open a bundle.
    pub fn open(bundle: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let handle = Arc::new(TrainerHandle::open(bundle.as_ref(), options)?);
        Ok(Trainer {
            handle,
            alone: PhantomData,
        })
    }

    /// What a step takes.
    pub fn feeds(&self) -> Vec<Spec<'_>> {
        self.handle.feeds()
    }

    /// What a step gives.
    pub fn results(&self) -> Vec<Spec<'_>> {
        self.handle.results()
    }

    /// One step. Feeds come by place or by name, each once.
    pub fn step(&mut self, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        self.fresh(Run::Step, feeds)
    }

    /// One step, its results into memory that is used again.
    pub fn step_into(&mut self, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        self.handle.run(Run::Step, feeds, results)
    }

    /// The results of a step that is not made.
    pub fn evaluate(&mut self, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        self.fresh(Run::Evaluate, feeds)
    }

    /// The results of a step that is not made, into memory that is used again.
    pub fn evaluate_into(&mut self, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        self.handle.run(Run::Evaluate, feeds, results)
    }

    /// Add up the gradients of a batch.
    pub fn accumulate(&mut self, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        self.fresh(Run::Accumulate, feeds)
    }

    /// Add up the gradients of a batch, the results into memory that is used again.
    pub fn accumulate_into(&mut self, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        self.handle.run(Run::Accumulate, feeds, results)
    }

    /// One step of the mean of the gradients added up.
    pub fn update(&mut self) -> Result<()> {
        self.handle.update()
    }

    /// Batches added up since the last update.
    pub fn accumulated(&self) -> i64 {
        self.handle.accumulated()
    }

    /// The first predict job on the present state.
    pub fn predict(&mut self, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        let mut results = Tensors::new();
        self.predict_into(None, feeds, &mut results)?;
        Ok(results)
    }

    /// A predict job, the first if `job` is `None`, into memory that is used again.
    pub fn predict_into(
        &mut self,
        job: Option<&str>,
        feeds: &[Tensor<'_>],
        results: &mut Tensors,
    ) -> Result<()> {
        self.handle.predict(job, feeds, results)
    }

    /// The number of steps made.
    pub fn steps(&self) -> i64 {
        self.handle.steps()
    }

    /// The rate that overrides the schedule, if one does.
    pub fn rate(&self) -> Option<f64> {
        Some(self.handle.rate()).filter(|rate| *rate >= 0.0)
    }

    /// Let this rate override the schedule.
    pub fn set_rate(&mut self, rate: f64) -> Result<()> {
        self.handle.set_rate(rate)
    }

    /// Give the rate back to the schedule.
    pub fn use_schedule(&mut self) -> Result<()> {
        self.handle.use_schedule()
    }

    /// Freeze these variables with their slots, and no others.
    pub fn freeze(&mut self, variables: &[&str]) -> Result<()> {
        self.handle.freeze(variables)
    }

    /// True if a variable is frozen.
    pub fn is_frozen(&self, variable: &str) -> bool {
        self.handle.is_frozen(variable)
    }

    /// Save the state: a file that appears whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.save(path.as_ref())
    }

    /// Replace the state by a saved one.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.load(path.as_ref())
    }

    /// Write the adapter that a bundle of adapters trains, as ONNX Runtime's file `.onnx_adapter`,
    /// which appears whole or not at all.
    pub fn export_adapter(&self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.export_adapter(path.as_ref())
    }

    /// Go on from an adapter of the same modules and ranks; the optimizer's slots stay.
    pub fn load_adapter(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.handle.load_adapter(path.as_ref())
    }

    /// Write a predict job, the first if `job` is `None`, with the present weights: a model for any
    /// ONNX Runtime.
    pub fn export_predict(&self, folder: impl AsRef<Path>, job: Option<&str>) -> Result<()> {
        self.handle.export_predict(folder.as_ref(), job)
    }

    /// The tensors of the state, by name.
    pub fn state(&mut self) -> State<'_> {
        State { trainer: self }
    }

    /// What stops its runs from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            handle: Arc::downgrade(&self.handle),
        }
    }

    fn fresh(&mut self, run: Run, feeds: &[Tensor<'_>]) -> Result<Tensors> {
        let mut results = Tensors::new();
        self.handle.run(run, feeds, &mut results)?;
        Ok(results)
    }
}

/// Stops the runs of a trainer, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    handle: Weak<TrainerHandle>,
}

impl Stopper {
    /// While stopped, a run ends soon, or does not begin, with [`crate::Kind::Stopped`] and the
    /// state as it was. Nothing happens where the trainer is gone.
    pub fn stop(&self, stopped: bool) {
        if let Some(handle) = self.handle.upgrade() {
            handle.stop(stopped);
        }
    }
}

/// A trainer's tensors, by name.
pub struct State<'a> {
    trainer: &'a mut Trainer,
}

impl State<'_> {
    /// What the state consists of.
    pub fn specs(&self) -> Vec<Spec<'_>> {
        self.trainer.handle.state_specs()
    }

    /// Copies of all tensors.
    pub fn read(&self) -> Result<Tensors> {
        self.trainer.handle.read_state(None)
    }

    /// Copies of the tensors named.
    pub fn read_some(&self, names: &[&str]) -> Result<Tensors> {
        self.trainer.handle.read_state(Some(names))
    }

    /// Replace some tensors. All are checked before any is written.
    pub fn write(&mut self, values: &[Tensor<'_>]) -> Result<()> {
        self.trainer.handle.write_state(values, false)
    }

    /// Replace exactly all.
    pub fn replace(&mut self, values: &[Tensor<'_>]) -> Result<()> {
        self.trainer.handle.write_state(values, true)
    }
}
