//! Views of arrays, and files of them.

use crate::ffi::{self, Element, Tensors};
use crate::{DType, Error, Kind, Result};
use std::path::Path;

/// The bits of a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Float16(pub u16);

/// The bits of a brain float.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct BFloat16(pub u16);

/// A view of an array: elements in C order, and their shape.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    name: Option<&'a str>,
    dtype: DType,
    shape: &'a [i64],
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// A view without name, for the input at its place; an error if the shape has another number
    /// of elements.
    pub fn new<T: Element>(values: &'a [T], shape: &'a [i64]) -> Result<Self> {
        Self::from_bytes(T::DTYPE, ffi::bytes_of(values), shape)
    }

    /// A view of elements given as their bytes, in the machine's order.
    pub fn from_bytes(dtype: DType, bytes: &'a [u8], shape: &'a [i64]) -> Result<Self> {
        let size = dtype.size();
        let count = shape.iter().try_fold(1_u64, |count, &length| {
            let length = u64::try_from(length).ok()?;
            // a size of 0 decides, whatever the others are
            Some(count.saturating_mul(length))
        });
        if count.and_then(|count| count.checked_mul(size as u64)) != Some(bytes.len() as u64) {
            return Err(Error::new(
                Kind::Feed,
                format!(
                    "shape {shape:?} does not fit {} bytes of {dtype}",
                    bytes.len()
                ),
                "give as many elements as the shape has",
            ));
        }
        Ok(Self::view(None, dtype, shape, bytes))
    }

    pub(crate) fn view(
        name: Option<&'a str>,
        dtype: DType,
        shape: &'a [i64],
        bytes: &'a [u8],
    ) -> Self {
        Tensor {
            name,
            dtype,
            shape,
            bytes,
        }
    }

    /// The same under a name, for the input or state tensor of that name.
    pub fn named(self, name: &'a str) -> Self {
        Tensor {
            name: Some(name),
            ..self
        }
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&'a str> {
        self.name
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its sizes.
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// The bytes of its elements.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its elements; an error if they are of another type.
    pub fn elements<T: Element>(&self) -> Result<&'a [T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::new(
                Kind::State,
                format!("{} is {}, read as {}", self.label(), self.dtype, T::DTYPE),
                "read it as what it is",
            ));
        }
        ffi::elements_of(self.bytes).ok_or_else(|| {
            Error::new(
                Kind::State,
                format!(
                    "{}: its bytes are no {} in their place",
                    self.label(),
                    T::DTYPE
                ),
                "copy them, or look at bytes()",
            )
        })
    }

    /// Element `index` along the first axis, such as one batch of all.
    pub fn at(&self, index: usize) -> Result<Self> {
        let count = match self.shape.first() {
            Some(&length) if length as u64 > index as u64 => length as usize,
            _ => {
                return Err(Error::new(
                    Kind::State,
                    format!(
                        "{} has no element {index} along its first axis",
                        self.label()
                    ),
                    "count from 0, below shape()[0]",
                ))
            }
        };
        let size = self.bytes.len() / count;
        Ok(Tensor {
            shape: &self.shape[1..],
            bytes: &self.bytes[index * size..(index + 1) * size],
            ..*self
        })
    }

    fn label(&self) -> &'a str {
        self.name.unwrap_or("a tensor")
    }
}

/// The tensors of a file.
pub fn load_safetensors(path: impl AsRef<Path>) -> Result<Tensors> {
    let mut tensors = Tensors::new();
    ffi::load_safetensors(path.as_ref(), &mut tensors)?;
    Ok(tensors)
}

/// Write named tensors, whole or not at all.
pub fn save_safetensors(path: impl AsRef<Path>, tensors: &[Tensor<'_>]) -> Result<()> {
    ffi::save_safetensors(path.as_ref(), tensors)
}
