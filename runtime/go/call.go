package flow2onnx

// #include "bridge.h"
import "C"

import (
	"runtime"
	"strings"
	"unsafe"
)

// inPlace is how many arrays a call takes without copies.
const inPlace = C.BRIDGE_FEEDS

// call runs what C does with some tensors; `results` may be nil.
func call(what uint32, handle unsafe.Pointer, job *C.char, feeds []Tensor, results *Tensors) error {
	for _, feed := range feeds {
		if feed.err != nil {
			return feed.err
		}
	}
	var into *C.f2o_tensors
	if results != nil {
		if results.raw == nil {
			return &Error{Kind: StateError, Message: "the results are closed", Hint: "give others"}
		}
		into = results.raw
	}
	status, message, err := callC(what, handle, job, feeds, into)
	if err != nil {
		return err
	}
	if err := refusal(status, message); err != nil {
		return err
	}
	if results != nil {
		results.fill()
	}
	return nil
}

// callC gives C the arrays, as many as it may in place.
func callC(what uint32, handle unsafe.Pointer, job *C.char, feeds []Tensor, into *C.f2o_tensors) (C.f2o_status, *C.char, error) {
	if len(feeds) > inPlace {
		return callCopied(what, handle, job, feeds, into)
	}
	about, shapes, names, err := describe(feeds)
	if err != nil {
		return 0, nil, err
	}
	var a [inPlace]unsafe.Pointer
	for i, feed := range feeds {
		a[i] = feed.data
	}
	var message *C.char
	status := C.bridge_call(what, handle, job, C.size_t(len(feeds)), &about[0], &shapes[0], &names[0],
		a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7],
		a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], into, &message)
	runtime.KeepAlive(feeds)
	return status, message, nil
}

// callCopied is the way of calls with more arrays than fit in place.
func callCopied(what uint32, handle unsafe.Pointer, job *C.char, feeds []Tensor, into *C.f2o_tensors) (C.f2o_status, *C.char, error) {
	list, err := copies(feeds)
	defer C.bridge_free(list, C.size_t(len(feeds)))
	if err != nil {
		return 0, nil, err
	}
	var message *C.char
	status := C.bridge_call_list(what, handle, job, list, C.size_t(len(feeds)), into, &message)
	return status, message, nil
}

// describe says what the arrays are, without a pointer in it; each part is at least one long.
func describe(feeds []Tensor) (about, shapes []C.int64_t, names []C.char, err error) {
	about = make([]C.int64_t, 0, 3*len(feeds)+1)
	for _, feed := range feeds {
		place := -1
		if feed.name != "" {
			if strings.IndexByte(feed.name, 0) >= 0 {
				return nil, nil, nil, &Error{Kind: FeedError, Message: "a name has a zero in it", Hint: "leave it out"}
			}
			place = len(names)
			for _, letter := range []byte(feed.name) {
				names = append(names, C.char(letter))
			}
			names = append(names, 0)
		}
		about = append(about, C.int64_t(feed.dtype), C.int64_t(len(feed.shape)), C.int64_t(place))
		for _, length := range feed.shape {
			shapes = append(shapes, C.int64_t(length))
		}
	}
	return append(about, 0), append(shapes, 0), append(names, 0), nil
}

// Spec is a tensor of a model or the state.
type Spec struct {
	Name      string
	DType     DType
	Shape     []int64  // -1 is free
	Symbols   []string // of free sizes, "?" for one without a name; empty for fixed ones
	Role      string   // of a state tensor: variable, slot, counter
	Of        string   // a slot's variable
	Trainable bool
	Range     *Range // of a feed of which something is known
}

// Range is the whole numbers that a feed may hold.
type Range struct {
	Least, Below int64
	Ignored      *int64 // allowed beside them
	Layer        string // what reads them, or nothing
}

// specs copies what C tells.
func specs(items *C.f2o_spec, count C.size_t) []Spec {
	found := make([]Spec, int(count))
	for i := range found {
		raw := &unsafe.Slice(items, int(count))[i]
		spec := Spec{
			Name:      C.GoString(raw.name),
			DType:     DType(raw.dtype),
			Shape:     sizes(raw.shape, raw.rank),
			Symbols:   make([]string, int(raw.rank)),
			Role:      C.GoString(raw.role),
			Of:        C.GoString(raw.of),
			Trainable: bool(raw.trainable),
		}
		for axis := range spec.Symbols {
			spec.Symbols[axis] = C.GoString(unsafe.Slice(raw.symbols, int(raw.rank))[axis])
		}
		if raw._range != nil {
			r := raw._range
			spec.Range = &Range{Least: int64(r.least), Below: int64(r.below), Layer: C.GoString(r.layer)}
			if r.has_ignored {
				ignored := int64(r.ignored)
				spec.Range.Ignored = &ignored
			}
		}
		found[i] = spec
	}
	return found
}
