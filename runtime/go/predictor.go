package flow2onnx

// #include "bridge.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// Predictor is a model file, or a predict job of a bundle; any number of goroutines call it at once.
type Predictor struct {
	mu  sync.RWMutex // held for reading by calls, for writing by Close
	raw *C.f2o_predictor
}

// OpenPredictor opens a model file, or a predict job of a bundle, the first if it has no name.
func OpenPredictor(modelOrBundle, job string, options *Options) (*Predictor, error) {
	var names texts
	defer names.free()
	where, err := names.text(modelOrBundle, BundleError)
	if err != nil {
		return nil, err
	}
	named, err := names.textOrNil(job, BundleError)
	if err != nil {
		return nil, err
	}
	chosen, err := names.options(options)
	if err != nil {
		return nil, err
	}
	var message *C.char
	p := &Predictor{}
	status := C.bridge_open_predictor(where, named, &chosen, &p.raw, &message)
	if err := refusal(status, message); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(p, (*Predictor).Close)
	return p, nil
}

// Close waits for calls that have begun and frees the predictor; it may be called again.
func (p *Predictor) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	C.f2o_predictor_close(p.raw)
	p.raw = nil
	runtime.SetFinalizer(p, nil)
}

// Feeds is what it takes.
func (p *Predictor) Feeds() []Spec {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.raw == nil {
		return nil
	}
	var count C.size_t
	items := C.f2o_predictor_feeds(p.raw, &count)
	return specs(items, count)
}

// Results is what it gives.
func (p *Predictor) Results() []Spec {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.raw == nil {
		return nil
	}
	var count C.size_t
	items := C.f2o_predictor_results(p.raw, &count)
	return specs(items, count)
}

// Run gives the results for these feeds, which come by place or by name, each once. A context that
// is done lets no call begin; one that has begun goes on, as it shares the model with others: Stop
// ends all of them.
func (p *Predictor) Run(ctx context.Context, feeds ...Tensor) (*Tensors, error) {
	return fresh(func(results *Tensors) error { return p.RunInto(ctx, results, feeds...) })
}

// RunInto is Run into memory that is used again.
func (p *Predictor) RunInto(ctx context.Context, results *Tensors, feeds ...Tensor) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.raw == nil {
		return &Error{Kind: StateError, Message: "the predictor is closed", Hint: "open another"}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Kind: StoppedError, Message: "not begun: " + err.Error(), cause: err}
	}
	return call(C.BRIDGE_RUN, unsafe.Pointer(p.raw), nil, feeds, results)
}

// Stop ends the calls of all goroutines, and lets none begin until Stop(false).
func (p *Predictor) Stop(stopped bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.raw != nil {
		C.f2o_predictor_stop(p.raw, C.bool(stopped))
	}
}
