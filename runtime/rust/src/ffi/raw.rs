//! The C API, generated from its header by `python -m runtime.bindings`.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_void};

pub type f2o_status = c_int;
pub const F2O_OK: f2o_status = 0;
/// a bundle, model or state file that is not what the contract asks for
pub const F2O_BUNDLE_ERROR: f2o_status = 1;
/// a value or request that does not fit the state
pub const F2O_STATE_ERROR: f2o_status = 2;
/// arrays that do not fit a model's inputs
pub const F2O_FEED_ERROR: f2o_status = 3;
/// a model that was opened but could not be run on these values
pub const F2O_RUN_ERROR: f2o_status = 4;
/// an option without meaning
pub const F2O_OPTIONS_ERROR: f2o_status = 5;
/// a loss that is NaN or infinite while `finite_losses` is on
pub const F2O_NON_FINITE_ERROR: f2o_status = 6;
/// a file that cannot be written
pub const F2O_FILE_ERROR: f2o_status = 7;
/// no memory left
pub const F2O_MEMORY_ERROR: f2o_status = 8;
/// an ONNX Runtime that is missing or too old
pub const F2O_RUNTIME_ERROR: f2o_status = 9;
/// a run that was stopped
pub const F2O_STOPPED_ERROR: f2o_status = 10;

/// Element types; the numbers are ONNX's.
pub type f2o_dtype = c_int;
pub const F2O_FLOAT32: f2o_dtype = 1;
pub const F2O_UINT8: f2o_dtype = 2;
pub const F2O_INT8: f2o_dtype = 3;
pub const F2O_UINT16: f2o_dtype = 4;
pub const F2O_INT16: f2o_dtype = 5;
pub const F2O_INT32: f2o_dtype = 6;
pub const F2O_INT64: f2o_dtype = 7;
pub const F2O_BOOL: f2o_dtype = 9;
pub const F2O_FLOAT16: f2o_dtype = 10;
pub const F2O_FLOAT64: f2o_dtype = 11;
pub const F2O_UINT32: f2o_dtype = 12;
pub const F2O_UINT64: f2o_dtype = 13;
pub const F2O_BFLOAT16: f2o_dtype = 16;

pub type f2o_optimization = c_int;
pub const F2O_OPTIMIZE_ALL: f2o_optimization = 0;
pub const F2O_OPTIMIZE_EXTENDED: f2o_optimization = 1;
pub const F2O_OPTIMIZE_BASIC: f2o_optimization = 2;
pub const F2O_OPTIMIZE_NONE: f2o_optimization = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_error {
    pub status: f2o_status,
    /// what was asked, what was got; on a second line what to do
    pub message: [c_char; 1024],
}

/// A tensor's memory: C order, elements in the machine's byte order, half precision as its bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_tensor {
    /// as a feed NULL: the one that stands at this place
    pub name: *const c_char,
    pub dtype: f2o_dtype,
    pub rank: usize,
    pub shape: *const i64,
    pub data: *const c_void,
}

/// Copies of tensors. Begin with {0}; a call that fills it reuses the memory; free it at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_tensors {
    pub count: usize,
    pub items: *const f2o_tensor,
    pub memory: *mut c_void,
    pub capacity: usize,
}

/// The whole numbers that a feed may hold: from `least` on, below `below`, and `ignored` if it has one. Those of classes begin with 0; rows are counted from the end of a table below 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_range {
    pub least: i64,
    pub below: i64,
    pub ignored: i64,
    pub has_ignored: bool,
    /// what reads them, or ""
    pub layer: *const c_char,
}

/// A tensor of a model or the state: a size of -1 is free, `symbols` names it ("?" without name).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_spec {
    pub name: *const c_char,
    pub dtype: f2o_dtype,
    pub rank: usize,
    pub shape: *const i64,
    /// NULL in place of fixed sizes
    pub symbols: *const *const c_char,
    /// of a state tensor: variable, slot, counter; else NULL
    pub role: *const c_char,
    /// a slot's variable, or NULL
    pub of: *const c_char,
    pub trainable: bool,
    /// of a feed of which something is known, or NULL
    pub range: *const f2o_range,
}

/// How models are opened, on the CPU. All zeros, or NULL, is the usual choice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct f2o_options {
    /// of one operator; 0: one per core
    pub threads: c_int,
    pub optimization: f2o_optimization,
    /// a step whose loss is not finite is refused and changes nothing
    pub finite_losses: bool,
    /// The file of ONNX Runtime's library, in builds that load it: NULL for that of the variable FLOW2ONNX_ORT_LIBRARY, or else one that the process has or the loader finds.
    pub ort_format: bool,
    pub library: *const c_char,
}

#[repr(C)]
pub struct f2o_trainer {
    _private: [u8; 0],
}

#[repr(C)]
pub struct f2o_state {
    _private: [u8; 0],
}

#[repr(C)]
pub struct f2o_predictor {
    _private: [u8; 0],
}

extern "C" {
    /// such as "float32"; NULL for no element type
    pub fn f2o_dtype_name(dtype: f2o_dtype) -> *const c_char;
    /// bytes of one element; 0 likewise
    pub fn f2o_dtype_size(dtype: f2o_dtype) -> usize;
    pub fn f2o_tensor_bytes(tensor: *const f2o_tensor) -> usize;
    /// or NULL
    pub fn f2o_tensors_find(tensors: *const f2o_tensors, name: *const c_char) -> *const f2o_tensor;
    pub fn f2o_tensors_free(tensors: *mut f2o_tensors);
    pub fn f2o_trainer_open(
        bundle: *const c_char,
        options: *const f2o_options,
        trainer: *mut *mut f2o_trainer,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// NULL is fine
    pub fn f2o_trainer_close(trainer: *mut f2o_trainer);
    /// Of the step. Valid until the trainer is closed.
    pub fn f2o_trainer_feeds(trainer: *const f2o_trainer, count: *mut usize) -> *const f2o_spec;
    pub fn f2o_trainer_results(trainer: *const f2o_trainer, count: *mut usize) -> *const f2o_spec;
    /// Feeds come by place or by name, each once. `results` may be NULL.
    pub fn f2o_trainer_step(
        trainer: *mut f2o_trainer,
        feeds: *const f2o_tensor,
        count: usize,
        results: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// The results of a step that is not made.
    pub fn f2o_trainer_evaluate(
        trainer: *mut f2o_trainer,
        feeds: *const f2o_tensor,
        count: usize,
        results: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// Add up the gradients of a batch; make one step of the mean of those added up.
    pub fn f2o_trainer_accumulate(
        trainer: *mut f2o_trainer,
        feeds: *const f2o_tensor,
        count: usize,
        results: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_update(trainer: *mut f2o_trainer, error: *mut f2o_error) -> f2o_status;
    /// batches since the last update
    pub fn f2o_trainer_accumulated(trainer: *const f2o_trainer) -> i64;
    /// A predict job (NULL: the first) on the present state.
    pub fn f2o_trainer_predict(
        trainer: *mut f2o_trainer,
        job: *const c_char,
        feeds: *const f2o_tensor,
        count: usize,
        results: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_steps(trainer: *const f2o_trainer) -> i64;
    /// The rate that overrides the schedule; below 0 while the schedule holds.
    pub fn f2o_trainer_rate(trainer: *const f2o_trainer) -> f64;
    pub fn f2o_trainer_set_rate(
        trainer: *mut f2o_trainer,
        rate: f64,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_use_schedule(trainer: *mut f2o_trainer, error: *mut f2o_error) -> f2o_status;
    /// Freeze these variables with their slots, and no others.
    pub fn f2o_trainer_freeze(
        trainer: *mut f2o_trainer,
        names: *const *const c_char,
        count: usize,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_is_frozen(trainer: *const f2o_trainer, variable: *const c_char) -> bool;
    /// A file that appears whole or not at all, also when the process is killed.
    pub fn f2o_trainer_save(
        trainer: *const f2o_trainer,
        path: *const c_char,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_load(
        trainer: *mut f2o_trainer,
        path: *const c_char,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// A predict job (NULL: the first) with the present weights; the folder is missing, empty, or holds an earlier export. Any ONNX Runtime opens its model file.
    pub fn f2o_trainer_export_predict(
        trainer: *const f2o_trainer,
        folder: *const c_char,
        job: *const c_char,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// The adapter that a bundle of adapters trains, as ONNX Runtime's file .onnx_adapter, which appears whole or not at all; and going on from one of the same modules and ranks: slots stay.
    pub fn f2o_trainer_export_adapter(
        trainer: *const f2o_trainer,
        path: *const c_char,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_trainer_load_adapter(
        trainer: *mut f2o_trainer,
        path: *const c_char,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// While stopped, a run ends soon, or does not begin, with F2O_STOPPED_ERROR and the state as it was; false lets runs begin again. From any thread, as long as the trainer is open.
    pub fn f2o_trainer_stop(trainer: *mut f2o_trainer, stopped: bool);
    /// the trainer's own: not to be freed
    pub fn f2o_trainer_state(trainer: *mut f2o_trainer) -> *mut f2o_state;
    pub fn f2o_state_specs(state: *const f2o_state, count: *mut usize) -> *const f2o_spec;
    /// Copies of the tensors named; of all if `names` is NULL.
    pub fn f2o_state_read(
        state: *const f2o_state,
        names: *const *const c_char,
        count: usize,
        values: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// Replace some tensors, or exactly all. All are checked before any is written.
    pub fn f2o_state_write(
        state: *mut f2o_state,
        values: *const f2o_tensor,
        count: usize,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_state_replace(
        state: *mut f2o_state,
        values: *const f2o_tensor,
        count: usize,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_predictor_open(
        model_or_bundle: *const c_char,
        job: *const c_char,
        options: *const f2o_options,
        predictor: *mut *mut f2o_predictor,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_predictor_close(predictor: *mut f2o_predictor);
    pub fn f2o_predictor_feeds(
        predictor: *const f2o_predictor,
        count: *mut usize,
    ) -> *const f2o_spec;
    pub fn f2o_predictor_results(
        predictor: *const f2o_predictor,
        count: *mut usize,
    ) -> *const f2o_spec;
    pub fn f2o_predictor_run(
        predictor: *const f2o_predictor,
        feeds: *const f2o_tensor,
        count: usize,
        results: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    /// The same of all calls of a predictor.
    pub fn f2o_predictor_stop(predictor: *mut f2o_predictor, stopped: bool);
    pub fn f2o_load_safetensors(
        path: *const c_char,
        tensors: *mut f2o_tensors,
        error: *mut f2o_error,
    ) -> f2o_status;
    pub fn f2o_save_safetensors(
        path: *const c_char,
        tensors: *const f2o_tensor,
        count: usize,
        error: *mut f2o_error,
    ) -> f2o_status;
}
