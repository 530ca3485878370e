//! Train and predict with flow2onnx bundles on a stock ONNX Runtime.
//!
//! A safe crate over the C runtime, which is compiled with it; ONNX Runtime's library is loaded when
//! the first bundle is opened. What is refused is an [`Error`] with its kind, a message and a hint,
//! and changes nothing.
//!
//! ```no_run
//! use flow2onnx::{Options, Tensor, Trainer};
//!
//! # fn main() -> flow2onnx::Result<()> {
//! let mut trainer = Trainer::open("bundle", &Options::default())?;
//! let (images, labels) = (vec![0.5_f32; 8 * 20], [0, 1, 2, 3, 4, 5, 6, 7]);
//! let results = trainer.step(&[
//!     Tensor::new(&images, &[8, 20])?.named("images"),
//!     Tensor::new(&labels, &[8])?.named("labels"),
//! ])?;
//! println!("loss {}", results.get("out/0")?.elements::<f32>()?[0]);
//! trainer.save("state.safetensors")?;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code, missing_docs)]

mod codes;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod options;
mod predictor;
mod spec;
mod tensor;
mod trainer;

pub use codes::{DType, Kind, Optimization};
pub use error::{Error, Result};
pub use ffi::{Element, Tensors};
pub use options::Options;
pub use predictor::Predictor;
pub use spec::{Range, Spec};
pub use tensor::{load_safetensors, save_safetensors, BFloat16, Float16, Tensor};
pub use trainer::{State, Stopper, Trainer};
