// Package flow2onnx trains and predicts with flow2onnx bundles on a stock ONNX Runtime.
//
// It is a binding to the C runtime, whose one source file is compiled with it; ONNX Runtime's
// library is loaded when the first bundle is opened. Arrays are read in place. What is refused is an
// *Error with its kind, a message and a hint, and changes nothing. A context that is done ends a
// run that has begun, with the state as it was.
package flow2onnx

// #cgo CFLAGS: -std=c11 -O2 -DFLOW2ONNX_LOAD_ORT
// #cgo LDFLAGS: -lm
// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Error is what the runtime refuses.
type Error struct {
	Kind    Kind
	Message string // what was asked, what was got
	Hint    string // what to do; may be empty
	cause   error
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\n  " + e.Hint
}

// Unwrap gives the error of the context that ended a run, if one did.
func (e *Error) Unwrap() error { return e.cause }

// Options say how models are opened, on the CPU; the zero value, or nil, is the usual choice.
type Options struct {
	Threads      int // of one operator; 0 is one per core
	Optimization Optimization
	FiniteLosses bool   // refuse a step whose loss is not finite
	ORTFormat    bool   // open x.ort in place of x.onnx
	Library      string // the file of ONNX Runtime; else FLOW2ONNX_ORT_LIBRARY, else what the loader finds
}

// refusal is the error that C has told, or nil; the message is freed.
func refusal(status C.f2o_status, message *C.char) error {
	if status == C.F2O_OK {
		return nil
	}
	said := "no memory left"
	if message != nil {
		said = C.GoString(message)
		C.free(unsafe.Pointer(message))
	}
	what, hint, _ := strings.Cut(said, "\n")
	return &Error{Kind: Kind(status), Message: what, Hint: strings.TrimSpace(hint)}
}

// texts are strings in memory of C, freed together.
type texts struct{ made []*C.char }

// text is a string of C; an error if it has a zero in it, where C would cut it.
func (t *texts) text(s string, kind Kind) (*C.char, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, &Error{Kind: kind, Message: fmt.Sprintf("%q has a zero in it", s), Hint: "leave it out"}
	}
	made := C.CString(s)
	t.made = append(t.made, made)
	return made, nil
}

// textOrNil is nil for an empty string.
func (t *texts) textOrNil(s string, kind Kind) (*C.char, error) {
	if s == "" {
		return nil, nil
	}
	return t.text(s, kind)
}

// list is an array of strings in memory of C, at least one long.
func (t *texts) list(names []string, kind Kind) (**C.char, error) {
	size := C.size_t(unsafe.Sizeof((*C.char)(nil)))
	array := (**C.char)(C.calloc(C.size_t(len(names)+1), size))
	t.made = append(t.made, (*C.char)(unsafe.Pointer(array)))
	places := unsafe.Slice(array, len(names)+1)
	for i, name := range names {
		made, err := t.text(name, kind)
		if err != nil {
			return nil, err
		}
		places[i] = made
	}
	return array, nil
}

func (t *texts) free() {
	for _, made := range t.made {
		C.free(unsafe.Pointer(made))
	}
}

// options fills what C takes; it is valid until the texts are freed.
func (t *texts) options(o *Options) (C.f2o_options, error) {
	if o == nil {
		o = &Options{}
	}
	library, err := t.textOrNil(o.Library, OptionsError)
	return C.f2o_options{
		threads:       C.int(o.Threads),
		optimization:  C.f2o_optimization(o.Optimization),
		finite_losses: C.bool(o.FiniteLosses),
		ort_format:    C.bool(o.ORTFormat),
		library:       library,
	}, err
}
