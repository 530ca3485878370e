//! All of the crate's unsafe code: the C API behind handles that only safe code uses.
//!
//! A pointer from C is checked or known by the header never to be NULL; views live no longer than
//! what holds their memory. A trainer's handle is shared with what stops it from other threads,
//! which calls nothing else; `Trainer` gives `&mut self` to all that changes it.

#[allow(dead_code)]
#[rustfmt::skip] // generated
mod raw;

use crate::{BFloat16, DType, Error, Float16, Kind, Options, Range, Result, Spec, Tensor};
use std::ffi::{CStr, CString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

// ---- Elements ----------------------------------------------------------------------------------

mod sealed {
    pub trait Sealed {}
}

/// A type of which tensors consist.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// Its element type in ONNX.
    const DTYPE: DType;
    #[doc(hidden)]
    fn all_valid(_bytes: &[u8]) -> bool {
        true
    }
}

macro_rules! elements {
    ($($kind:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $kind {}
        impl Element for $kind {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(f32 => Float32, f64 => Float64, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
          u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64, Float16 => Float16,
          BFloat16 => BFloat16);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn all_valid(bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| *byte < 2)
    }
}

pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an element has no padding, and any byte is a u8.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

/// The elements that lie in these bytes; `None` if they are not aligned or mean nothing.
pub(crate) fn elements_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    if !T::all_valid(bytes) {
        return None;
    }
    // SAFETY: each pattern of bits is a value of T, or was looked at.
    let (before, elements, behind) = unsafe { bytes.align_to::<T>() };
    (before.is_empty() && behind.is_empty()).then_some(elements)
}

/// Bytes of one element.
pub(crate) fn element_size(dtype: DType) -> usize {
    // SAFETY: takes any number.
    unsafe { raw::f2o_dtype_size(dtype.code()) }
}

/// The name of an element type.
pub(crate) fn element_name(dtype: DType) -> &'static str {
    // SAFETY: a text of the program's, or NULL.
    let name = unsafe { raw::f2o_dtype_name(dtype.code()).as_ref() };
    name.map_or("no element type", |name| unsafe { text(name) })
}

// ---- Texts and errors --------------------------------------------------------------------------

/// A text of C. Names come out of JSON that was checked to be UTF-8.
///
/// # Safety
/// It ends with a zero and lives as long as it is used.
unsafe fn text<'a>(start: *const c_char) -> &'a str {
    CStr::from_ptr(start).to_str().unwrap_or("?")
}

/// A text of C that may be missing.
///
/// # Safety
/// As `text`, where it is not NULL.
unsafe fn text_or_none<'a>(start: *const c_char) -> Option<&'a str> {
    (!start.is_null()).then(|| text(start))
}

fn c_text(bytes: &[u8], kind: Kind) -> Result<CString> {
    CString::new(bytes).map_err(|_| {
        let shown = String::from_utf8_lossy(bytes);
        Error::new(kind, format!("{shown:?} has a zero in it"), "leave it out")
    })
}

fn c_path(path: &Path) -> Result<CString> {
    c_text(path.as_os_str().as_bytes(), Kind::File)
}

fn c_names(names: &[&str]) -> Result<Vec<CString>> {
    let made = names
        .iter()
        .map(|name| c_text(name.as_bytes(), Kind::State));
    made.collect()
}

fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}

fn or_null(name: &Option<CString>) -> *const c_char {
    name.as_ref().map_or(ptr::null(), |name| name.as_ptr())
}

/// Call C with room for an error, and read that where the status says so.
fn checked(call: impl FnOnce(*mut raw::f2o_error) -> raw::f2o_status) -> Result<()> {
    let mut error = raw::f2o_error {
        status: raw::F2O_OK,
        message: [0; 1024],
    };
    let status = call(&mut error);
    if status == raw::F2O_OK {
        return Ok(());
    }
    // SAFETY: C ends the message with a zero.
    let said = unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy();
    let (message, hint) = said.split_once('\n').unwrap_or((&said, ""));
    let kind = Kind::from_code(status).unwrap_or(Kind::Run);
    Err(Error::new(kind, message, hint.trim()))
}

// ---- Tensors -----------------------------------------------------------------------------------

/// Feeds as C takes them, with the names that they point to.
struct FeedList {
    views: Vec<raw::f2o_tensor>,
    _names: Vec<CString>,
}

impl FeedList {
    fn new(feeds: &[Tensor<'_>], kind: Kind) -> Result<Self> {
        let mut names = Vec::new();
        let mut views = Vec::with_capacity(feeds.len());
        for feed in feeds {
            let name = match feed.name() {
                None => ptr::null(),
                Some(name) => {
                    names.push(c_text(name.as_bytes(), kind)?);
                    names[names.len() - 1].as_ptr() // the text itself does not move
                }
            };
            views.push(raw::f2o_tensor {
                name,
                dtype: feed.dtype().code(),
                rank: feed.shape().len(),
                shape: feed.shape().as_ptr(),
                data: feed.bytes().as_ptr().cast(),
            });
        }
        Ok(FeedList {
            views,
            _names: names,
        })
    }
}

/// Copies of tensors; a call that fills it uses its memory again.
pub struct Tensors {
    raw: raw::f2o_tensors,
}

// SAFETY: its memory is its own.
unsafe impl Send for Tensors {}

impl std::fmt::Debug for Tensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Default for Tensors {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        // SAFETY: made by C, or empty.
        unsafe { raw::f2o_tensors_free(&mut self.raw) }
    }
}

impl Tensors {
    /// None yet.
    pub fn new() -> Self {
        Tensors {
            raw: raw::f2o_tensors {
                count: 0,
                items: ptr::null(),
                memory: ptr::null_mut(),
                capacity: 0,
            },
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.raw.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.count == 0
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> + '_ {
        // SAFETY: C has so many, which live until self is changed.
        (0..self.len()).map(|index| unsafe { view(&*self.raw.items.add(index)) })
    }

    /// The one at a place; an error if there are fewer.
    pub fn at(&self, index: usize) -> Result<Tensor<'_>> {
        self.iter().nth(index).ok_or_else(|| {
            let message = format!("there is no tensor {index} of {}", self.len());
            Error::new(Kind::State, message, "count from 0")
        })
    }

    /// The one of a name; an error if there is none.
    pub fn get(&self, name: &str) -> Result<Tensor<'_>> {
        let wanted = c_text(name.as_bytes(), Kind::State)?;
        // SAFETY: NULL, or a tensor that lives until self is changed.
        let found = unsafe { raw::f2o_tensors_find(&self.raw, wanted.as_ptr()).as_ref() };
        found.map(|found| unsafe { view(found) }).ok_or_else(|| {
            let message = format!("there is no tensor {name}");
            Error::new(
                Kind::State,
                message,
                "results() and state().specs() list the names",
            )
        })
    }
}

/// A tensor of C.
///
/// # Safety
/// What it points to lives for 'a.
unsafe fn view<'a>(tensor: &raw::f2o_tensor) -> Tensor<'a> {
    let dtype = DType::from_code(tensor.dtype).expect("C knows no other element types");
    let shape = slice(tensor.shape, tensor.rank);
    let bytes = slice(tensor.data.cast::<u8>(), raw::f2o_tensor_bytes(tensor));
    Tensor::view(text_or_none(tensor.name), dtype, shape, bytes)
}

/// A slice of C, which may give NULL for none.
///
/// # Safety
/// So many lie there, for 'a.
unsafe fn slice<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    std::slice::from_raw_parts(start, count)
}

/// What a model or a state consists of.
///
/// # Safety
/// So many specs lie there, for 'a.
unsafe fn specs<'a>(items: *const raw::f2o_spec, count: usize) -> Vec<Spec<'a>> {
    slice(items, count).iter().map(|item| spec(item)).collect()
}

unsafe fn spec<'a>(item: &raw::f2o_spec) -> Spec<'a> {
    let symbols = slice(item.symbols, item.rank);
    Spec {
        name: text(item.name),
        dtype: DType::from_code(item.dtype).expect("C knows no other element types"),
        shape: slice(item.shape, item.rank),
        symbols: symbols.iter().map(|symbol| text_or_none(*symbol)).collect(),
        role: text_or_none(item.role),
        of: text_or_none(item.of),
        trainable: item.trainable,
        range: item.range.as_ref().map(|range| Range {
            least: range.least,
            below: range.below,
            ignored: range.has_ignored.then_some(range.ignored),
            layer: text(range.layer),
        }),
    }
}

pub(crate) fn load_safetensors(path: &Path, into: &mut Tensors) -> Result<()> {
    let path = c_path(path)?;
    // SAFETY: C fills it, or leaves it as it was.
    checked(|error| unsafe { raw::f2o_load_safetensors(path.as_ptr(), &mut into.raw, error) })
}

pub(crate) fn save_safetensors(path: &Path, tensors: &[Tensor<'_>]) -> Result<()> {
    let path = c_path(path)?;
    if tensors.iter().any(|tensor| tensor.name().is_none()) {
        let hint = "give each one with named()";
        return Err(Error::new(Kind::File, "a tensor without a name", hint));
    }
    let list = FeedList::new(tensors, Kind::File)?;
    // SAFETY: the list holds what it points to.
    checked(|error| unsafe {
        raw::f2o_save_safetensors(path.as_ptr(), list.views.as_ptr(), list.views.len(), error)
    })
}

// ---- Handles -----------------------------------------------------------------------------------

/// Options as C takes them, for the time of `open`.
fn with_options<T>(
    options: &Options,
    open: impl FnOnce(*const raw::f2o_options) -> Result<T>,
) -> Result<T> {
    let library = options.library.as_deref().map(c_path).transpose()?;
    open(&raw::f2o_options {
        threads: options.threads,
        optimization: options.optimization.code(),
        finite_losses: options.finite_losses,
        ort_format: options.ort_format,
        library: or_null(&library),
    })
}

fn c_job(job: Option<&str>) -> Result<Option<CString>> {
    job.map(|job| c_text(job.as_bytes(), Kind::Bundle))
        .transpose()
}

/// What a trainer does with a batch.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    Step,
    Evaluate,
    Accumulate,
}

/// A trainer of C, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct TrainerHandle(NonNull<raw::f2o_trainer>);

// SAFETY: C lets any thread use it, one at a time, and any thread stop it meanwhile: the crate
// shares it with nothing but `Stopper`.
unsafe impl Send for TrainerHandle {}
unsafe impl Sync for TrainerHandle {}

impl Drop for TrainerHandle {
    fn drop(&mut self) {
        // SAFETY: the last use of it.
        unsafe { raw::f2o_trainer_close(self.raw()) }
    }
}

// SAFETY of all below: the handle is open; texts and lists live for the time of the call.
impl TrainerHandle {
    fn raw(&self) -> *mut raw::f2o_trainer {
        self.0.as_ptr()
    }

    pub(crate) fn open(bundle: &Path, options: &Options) -> Result<Self> {
        let bundle = c_path(bundle)?;
        with_options(options, |options| {
            let mut opened = ptr::null_mut();
            checked(|error| unsafe {
                raw::f2o_trainer_open(bundle.as_ptr(), options, &mut opened, error)
            })?;
            Ok(TrainerHandle(NonNull::new(opened).expect("C opened it")))
        })
    }

    pub(crate) fn feeds(&self) -> Vec<Spec<'_>> {
        let mut count = 0;
        unsafe { specs(raw::f2o_trainer_feeds(self.raw(), &mut count), count) }
    }

    pub(crate) fn results(&self) -> Vec<Spec<'_>> {
        let mut count = 0;
        unsafe { specs(raw::f2o_trainer_results(self.raw(), &mut count), count) }
    }

    pub(crate) fn run(&self, what: Run, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        let list = FeedList::new(feeds, Kind::Feed)?;
        let call = match what {
            Run::Step => raw::f2o_trainer_step,
            Run::Evaluate => raw::f2o_trainer_evaluate,
            Run::Accumulate => raw::f2o_trainer_accumulate,
        };
        let (views, count) = (list.views.as_ptr(), list.views.len());
        checked(|error| unsafe { call(self.raw(), views, count, &mut results.raw, error) })
    }

    pub(crate) fn update(&self) -> Result<()> {
        checked(|error| unsafe { raw::f2o_trainer_update(self.raw(), error) })
    }

    pub(crate) fn accumulated(&self) -> i64 {
        unsafe { raw::f2o_trainer_accumulated(self.raw()) }
    }

    pub(crate) fn predict(
        &self,
        job: Option<&str>,
        feeds: &[Tensor<'_>],
        results: &mut Tensors,
    ) -> Result<()> {
        let (job, list) = (c_job(job)?, FeedList::new(feeds, Kind::Feed)?);
        let (views, count) = (list.views.as_ptr(), list.views.len());
        checked(|error| unsafe {
            let into = &mut results.raw;
            raw::f2o_trainer_predict(self.raw(), or_null(&job), views, count, into, error)
        })
    }

    pub(crate) fn steps(&self) -> i64 {
        unsafe { raw::f2o_trainer_steps(self.raw()) }
    }

    pub(crate) fn rate(&self) -> f64 {
        unsafe { raw::f2o_trainer_rate(self.raw()) }
    }

    pub(crate) fn set_rate(&self, rate: f64) -> Result<()> {
        checked(|error| unsafe { raw::f2o_trainer_set_rate(self.raw(), rate, error) })
    }

    pub(crate) fn use_schedule(&self) -> Result<()> {
        checked(|error| unsafe { raw::f2o_trainer_use_schedule(self.raw(), error) })
    }

    pub(crate) fn freeze(&self, variables: &[&str]) -> Result<()> {
        let names = c_names(variables)?;
        let listed = pointers(&names);
        checked(|error| unsafe {
            raw::f2o_trainer_freeze(self.raw(), listed.as_ptr(), listed.len(), error)
        })
    }

    pub(crate) fn is_frozen(&self, variable: &str) -> bool {
        let name = c_text(variable.as_bytes(), Kind::State);
        name.is_ok_and(|name| unsafe { raw::f2o_trainer_is_frozen(self.raw(), name.as_ptr()) })
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let path = c_path(path)?;
        checked(|error| unsafe { raw::f2o_trainer_save(self.raw(), path.as_ptr(), error) })
    }

    pub(crate) fn load(&self, path: &Path) -> Result<()> {
        let path = c_path(path)?;
        checked(|error| unsafe { raw::f2o_trainer_load(self.raw(), path.as_ptr(), error) })
    }

    pub(crate) fn export_adapter(&self, path: &Path) -> Result<()> {
        let path = c_path(path)?;
        checked(|error| unsafe {
            raw::f2o_trainer_export_adapter(self.raw(), path.as_ptr(), error)
        })
    }

    pub(crate) fn load_adapter(&self, path: &Path) -> Result<()> {
        let path = c_path(path)?;
        checked(|error| unsafe { raw::f2o_trainer_load_adapter(self.raw(), path.as_ptr(), error) })
    }

    pub(crate) fn export_predict(&self, folder: &Path, job: Option<&str>) -> Result<()> {
        let (folder, job) = (c_path(folder)?, c_job(job)?);
        checked(|error| unsafe {
            raw::f2o_trainer_export_predict(self.raw(), folder.as_ptr(), or_null(&job), error)
        })
    }

    pub(crate) fn stop(&self, stopped: bool) {
        unsafe { raw::f2o_trainer_stop(self.raw(), stopped) }
    }

    pub(crate) fn state_specs(&self) -> Vec<Spec<'_>> {
        let mut count = 0;
        unsafe {
            let state = raw::f2o_trainer_state(self.raw());
            specs(raw::f2o_state_specs(state, &mut count), count)
        }
    }

    pub(crate) fn read_state(&self, names: Option<&[&str]>) -> Result<Tensors> {
        let mut values = Tensors::new();
        let made = names.map(c_names).transpose()?;
        let listed = made.as_deref().map(|names| {
            let mut listed = pointers(names);
            listed.push(ptr::null()); // no name is not the same as all of them
            listed
        });
        let count = names.map_or(0, <[&str]>::len);
        let start = listed
            .as_ref()
            .map_or(ptr::null(), |listed| listed.as_ptr());
        checked(|error| unsafe {
            let state = raw::f2o_trainer_state(self.raw());
            raw::f2o_state_read(state, start, count, &mut values.raw, error)
        })?;
        Ok(values)
    }

    pub(crate) fn write_state(&self, values: &[Tensor<'_>], all: bool) -> Result<()> {
        let list = FeedList::new(values, Kind::State)?;
        let call = if all {
            raw::f2o_state_replace
        } else {
            raw::f2o_state_write
        };
        checked(|error| unsafe {
            let state = raw::f2o_trainer_state(self.raw());
            call(state, list.views.as_ptr(), list.views.len(), error)
        })
    }
}

/// A predictor of C, closed when it is dropped.
pub(crate) struct PredictorHandle(NonNull<raw::f2o_predictor>);

// SAFETY: C lets any number of threads call it at once, and stop it.
unsafe impl Send for PredictorHandle {}
unsafe impl Sync for PredictorHandle {}

impl Drop for PredictorHandle {
    fn drop(&mut self) {
        // SAFETY: the last use of it.
        unsafe { raw::f2o_predictor_close(self.0.as_ptr()) }
    }
}

// SAFETY of all below: as of the trainer's.
impl PredictorHandle {
    pub(crate) fn open(path: &Path, job: Option<&str>, options: &Options) -> Result<Self> {
        let (path, job) = (c_path(path)?, c_job(job)?);
        with_options(options, |options| {
            let mut opened = ptr::null_mut();
            checked(|error| unsafe {
                let into = &mut opened;
                raw::f2o_predictor_open(path.as_ptr(), or_null(&job), options, into, error)
            })?;
            Ok(PredictorHandle(NonNull::new(opened).expect("C opened it")))
        })
    }

    pub(crate) fn feeds(&self) -> Vec<Spec<'_>> {
        let mut count = 0;
        unsafe { specs(raw::f2o_predictor_feeds(self.0.as_ptr(), &mut count), count) }
    }

    pub(crate) fn results(&self) -> Vec<Spec<'_>> {
        let mut count = 0;
        unsafe {
            specs(
                raw::f2o_predictor_results(self.0.as_ptr(), &mut count),
                count,
            )
        }
    }

    pub(crate) fn run(&self, feeds: &[Tensor<'_>], results: &mut Tensors) -> Result<()> {
        let list = FeedList::new(feeds, Kind::Feed)?;
        let (views, count) = (list.views.as_ptr(), list.views.len());
        let raw_self = self.0.as_ptr();
        checked(|error| unsafe {
            raw::f2o_predictor_run(raw_self, views, count, &mut results.raw, error)
        })
    }

    pub(crate) fn stop(&self, stopped: bool) {
        unsafe { raw::f2o_predictor_stop(self.0.as_ptr(), stopped) }
    }
}
