package flow2onnx

// #include <stdlib.h>
// #include <string.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Half is the bits of a float16, Brain those of a bfloat16.
type (
	Half  uint16
	Brain uint16
)

// Element is a type of which tensors consist.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | Half | Brain
}

// Tensor is a view of an array in C order.
type Tensor struct {
	name  string
	dtype DType
	shape []int64
	data  unsafe.Pointer
	bytes int
	err   error // why it is none
}

// DTypeOf is the element type of ONNX that T is.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case bool:
		return Bool
	case Half:
		return Float16
	default:
		return BFloat16
	}
}

// Size is the bytes of one element; 0 for no element type.
func (d DType) Size() int { return int(C.f2o_dtype_size(C.f2o_dtype(d))) }

func (d DType) String() string {
	if name := C.f2o_dtype_name(C.f2o_dtype(d)); name != nil {
		return C.GoString(name)
	}
	return "no element type"
}

// Of views a slice, for the input at its place. A shape of another number of elements is an error
// of the call that it is given to.
func Of[T Element](values []T, shape ...int64) Tensor {
	var zero T
	t := Tensor{dtype: DTypeOf[T](), shape: shape, bytes: len(values) * int(unsafe.Sizeof(zero))}
	if len(values) > 0 {
		t.data = unsafe.Pointer(&values[0])
	}
	if !counts(shape, len(values)) {
		t.err = &Error{
			Kind:    FeedError,
			Message: fmt.Sprintf("shape %v has another number of elements than %d", shape, len(values)),
			Hint:    "give as many elements as the shape has",
		}
	}
	return t
}

// counts is true if a shape has so many elements.
func counts(shape []int64, size int) bool {
	count, zero := uint64(1), false
	for _, length := range shape {
		if length < 0 {
			return false
		}
		zero = zero || length == 0
		if length > 0 && count > uint64(1<<62)/uint64(length) {
			count = 1 << 62
		} else if length > 0 {
			count *= uint64(length)
		}
	}
	if zero {
		count = 0
	}
	return count == uint64(size)
}

// Named is the same under a name, for the input or state tensor of that name.
func (t Tensor) Named(name string) Tensor {
	t.name = name
	return t
}

// Name is its name, or nothing.
func (t Tensor) Name() string { return t.name }

// DType is its element type.
func (t Tensor) DType() DType { return t.dtype }

// Shape is its sizes.
func (t Tensor) Shape() []int64 { return t.shape }

// Bytes is the size of its elements.
func (t Tensor) Bytes() int { return t.bytes }

// Elements views a tensor's elements in place; an error if they are of another type. Those of a
// result are overwritten by the next call that fills it.
func Elements[T Element](t Tensor) ([]T, error) {
	var zero T
	if t.err != nil {
		return nil, t.err
	}
	if wanted := DTypeOf[T](); wanted != t.dtype {
		message := fmt.Sprintf("%s is %s, read as %s", t.name, t.dtype, wanted)
		return nil, &Error{Kind: StateError, Message: message, Hint: "read it as what it is"}
	}
	if t.bytes == 0 {
		return nil, nil
	}
	if t.dtype == Bool {
		for _, b := range unsafe.Slice((*byte)(t.data), t.bytes) {
			if b > 1 {
				message := fmt.Sprintf("%s holds a byte %d, which is no bool", t.name, b)
				return nil, &Error{Kind: StateError, Message: message, Hint: "look at who wrote it"}
			}
		}
	}
	return unsafe.Slice((*T)(t.data), t.bytes/int(unsafe.Sizeof(zero))), nil
}

// At is the element along the first axis, such as one batch of all.
func (t Tensor) At(index int) Tensor {
	if t.err != nil {
		return t
	}
	if len(t.shape) == 0 || index < 0 || int64(index) >= t.shape[0] {
		message := fmt.Sprintf("%s has no element %d along its first axis", t.name, index)
		t.err = &Error{Kind: StateError, Message: message, Hint: "count from 0, below Shape()[0]"}
		return t
	}
	size := t.bytes / int(t.shape[0])
	if size > 0 {
		t.data = unsafe.Add(t.data, index*size)
	}
	t.bytes, t.shape = size, t.shape[1:]
	return t
}

// Tensors are copies of tensors, in memory of Go that each call that fills them uses again. What
// views it keeps it.
type Tensors struct {
	raw   *C.f2o_tensors // what C fills, from which the items are copied
	items []item
}

// item is one tensor; words, so that every element type is aligned.
type item struct {
	name  string
	dtype DType
	shape []int64
	words []uint64
	bytes int
}

// NewTensors has none yet.
func NewTensors() *Tensors {
	size := C.size_t(unsafe.Sizeof(C.f2o_tensors{}))
	t := &Tensors{raw: (*C.f2o_tensors)(C.calloc(1, size))}
	runtime.SetFinalizer(t, (*Tensors).Close)
	return t
}

// Close frees the memory of C at once, in place of when nobody needs the tensors any more; there
// are none after it, and it is filled no more.
func (t *Tensors) Close() {
	if t.raw != nil {
		C.f2o_tensors_free(t.raw)
		C.free(unsafe.Pointer(t.raw))
	}
	t.raw, t.items = nil, nil
	runtime.SetFinalizer(t, nil)
}

// fill copies what C has written; where it is the same kind of thing as before nothing is allocated.
func (t *Tensors) fill() {
	count := int(t.raw.count)
	if count > cap(t.items) {
		t.items = make([]item, count)
	}
	t.items = t.items[:count]
	for i := range t.items {
		t.items[i].fill(&unsafe.Slice(t.raw.items, count)[i])
	}
}

func (it *item) fill(raw *C.f2o_tensor) {
	if name := unsafe.Slice((*byte)(unsafe.Pointer(raw.name)), int(C.strlen(raw.name))); it.name != string(name) {
		it.name = string(name)
	}
	it.dtype, it.bytes = DType(raw.dtype), int(C.f2o_tensor_bytes(raw))
	it.shape = sizes(raw.shape, raw.rank) // who views the last ones keeps them
	words := (it.bytes + 7) / 8
	if words > cap(it.words) {
		it.words = make([]uint64, words)
	}
	it.words = it.words[:words]
	if it.bytes > 0 {
		C.memcpy(unsafe.Pointer(&it.words[0]), raw.data, C.size_t(it.bytes))
	}
}

// shrink frees what C holds, of tensors that are not filled again soon.
func (t *Tensors) shrink() { C.f2o_tensors_free(t.raw) }

// Len is how many there are.
func (t *Tensors) Len() int { return len(t.items) }

// At is the one at a place.
func (t *Tensors) At(index int) Tensor {
	if index < 0 || index >= t.Len() {
		message := fmt.Sprintf("there is no tensor %d of %d", index, t.Len())
		return Tensor{err: &Error{Kind: StateError, Message: message, Hint: "count from 0"}}
	}
	it := &t.items[index]
	view := Tensor{name: it.name, dtype: it.dtype, shape: it.shape, bytes: it.bytes}
	if len(it.words) > 0 {
		view.data = unsafe.Pointer(&it.words[0])
	}
	return view
}

// Get is the one of a name.
func (t *Tensors) Get(name string) Tensor {
	for i := range t.items {
		if t.items[i].name == name {
			return t.At(i)
		}
	}
	return Tensor{err: &Error{
		Kind:    StateError,
		Message: "there is no tensor " + name,
		Hint:    "Results() and State().Specs() list the names",
	}}
}

// All is all of them, in their order.
func (t *Tensors) All() []Tensor {
	all := make([]Tensor, t.Len())
	for i := range all {
		all[i] = t.At(i)
	}
	return all
}

// sizes copies a shape.
func sizes(start *C.int64_t, rank C.size_t) []int64 {
	shape := make([]int64, int(rank))
	if rank > 0 {
		copy(shape, unsafe.Slice((*int64)(unsafe.Pointer(start)), int(rank)))
	}
	return shape
}

// LoadSafetensors reads the tensors of a file.
func LoadSafetensors(path string) (*Tensors, error) {
	var names texts
	defer names.free()
	where, err := names.text(path, BundleError)
	if err != nil {
		return nil, err
	}
	var message *C.char
	tensors := NewTensors()
	if err := refusal(C.bridge_load_tensors(where, tensors.raw, &message), message); err != nil {
		tensors.Close()
		return nil, err
	}
	tensors.fill()
	tensors.shrink()
	return tensors, nil
}

// SaveSafetensors writes named tensors, whole or not at all.
func SaveSafetensors(path string, tensors ...Tensor) error {
	var names texts
	defer names.free()
	where, err := names.text(path, FileError)
	if err != nil {
		return err
	}
	list, err := copies(tensors)
	defer C.bridge_free(list, C.size_t(len(tensors)))
	if err != nil {
		return err
	}
	var message *C.char
	return refusal(C.bridge_save_tensors(where, list, C.size_t(len(tensors)), &message), message)
}

// copies puts tensors into memory of C.
func copies(tensors []Tensor) (*C.f2o_tensor, error) {
	list := C.bridge_list(C.size_t(len(tensors)))
	for i, t := range tensors {
		if t.err != nil {
			return list, t.err
		}
		var names texts
		name, err := names.textOrNil(t.name, StateError)
		var shape *C.int64_t
		if len(t.shape) > 0 {
			shape = (*C.int64_t)(unsafe.Pointer(&t.shape[0]))
		}
		set := err == nil && list != nil && bool(C.bridge_set(list, C.size_t(i), name, C.int(t.dtype),
			C.size_t(len(t.shape)), shape, t.data, C.size_t(t.bytes)))
		names.free()
		if err != nil {
			return list, err
		}
		if !set {
			return list, &Error{Kind: MemoryError, Message: "no memory left"}
		}
	}
	runtime.KeepAlive(tensors)
	return list, nil
}
