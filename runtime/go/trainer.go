package flow2onnx

// #include "bridge.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// Trainer is a bundle's job with its state. Calls from several goroutines wait for each other.
type Trainer struct {
	mu  sync.Mutex
	raw *C.f2o_trainer
}

// Open opens a bundle.
func Open(bundle string, options *Options) (*Trainer, error) {
	var names texts
	defer names.free()
	where, err := names.text(bundle, BundleError)
	if err != nil {
		return nil, err
	}
	chosen, err := names.options(options)
	if err != nil {
		return nil, err
	}
	var message *C.char
	t := &Trainer{}
	if err := refusal(C.bridge_open_trainer(where, &chosen, &t.raw, &message), message); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, (*Trainer).Close)
	return t, nil
}

// Close frees the trainer; it may be called again.
func (t *Trainer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	C.f2o_trainer_close(t.raw)
	t.raw = nil
	runtime.SetFinalizer(t, nil)
}

var errClosed = &Error{Kind: StateError, Message: "the trainer is closed", Hint: "open another"}

// with calls `do` while nobody else uses the trainer, with texts that are freed after it.
func (t *Trainer) with(do func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return errClosed
	}
	var names texts
	defer names.free()
	var message *C.char
	status, err := do(t.raw, &names, &message)
	if err != nil {
		return err
	}
	return refusal(status, message)
}

// Feeds is what a step takes.
func (t *Trainer) Feeds() []Spec {
	return t.specs(func(raw *C.f2o_trainer, count *C.size_t) *C.f2o_spec { return C.f2o_trainer_feeds(raw, count) })
}

// Results is what a step gives.
func (t *Trainer) Results() []Spec {
	return t.specs(func(raw *C.f2o_trainer, count *C.size_t) *C.f2o_spec { return C.f2o_trainer_results(raw, count) })
}

func (t *Trainer) specs(of func(*C.f2o_trainer, *C.size_t) *C.f2o_spec) []Spec {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return nil
	}
	var count C.size_t
	items := of(t.raw, &count)
	return specs(items, count)
}

// Step makes one step. Feeds come by place or by name, each once.
func (t *Trainer) Step(ctx context.Context, feeds ...Tensor) (*Tensors, error) {
	return fresh(func(results *Tensors) error { return t.StepInto(ctx, results, feeds...) })
}

// StepInto makes one step, its results in memory that is used again; nil for none.
func (t *Trainer) StepInto(ctx context.Context, results *Tensors, feeds ...Tensor) error {
	return t.run(ctx, C.BRIDGE_STEP, "", results, feeds)
}

// Evaluate gives the results of a step that is not made.
func (t *Trainer) Evaluate(ctx context.Context, feeds ...Tensor) (*Tensors, error) {
	return fresh(func(results *Tensors) error { return t.EvaluateInto(ctx, results, feeds...) })
}

// EvaluateInto is Evaluate into memory that is used again.
func (t *Trainer) EvaluateInto(ctx context.Context, results *Tensors, feeds ...Tensor) error {
	return t.run(ctx, C.BRIDGE_EVALUATE, "", results, feeds)
}

// Accumulate adds up the gradients of a batch.
func (t *Trainer) Accumulate(ctx context.Context, feeds ...Tensor) (*Tensors, error) {
	return fresh(func(results *Tensors) error { return t.AccumulateInto(ctx, results, feeds...) })
}

// AccumulateInto is Accumulate with its results in memory that is used again.
func (t *Trainer) AccumulateInto(ctx context.Context, results *Tensors, feeds ...Tensor) error {
	return t.run(ctx, C.BRIDGE_ACCUMULATE, "", results, feeds)
}

// Update makes one step of the mean of the gradients added up.
func (t *Trainer) Update(ctx context.Context) error {
	return t.watched(ctx, func(raw *C.f2o_trainer) error {
		var message *C.char
		return refusal(C.bridge_update(raw, &message), message)
	})
}

// Accumulated is the number of batches added up since the last update.
func (t *Trainer) Accumulated() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return 0
	}
	return int64(C.f2o_trainer_accumulated(t.raw))
}

// Predict runs the first predict job on the present state.
func (t *Trainer) Predict(ctx context.Context, feeds ...Tensor) (*Tensors, error) {
	return fresh(func(results *Tensors) error { return t.PredictInto(ctx, "", results, feeds...) })
}

// PredictInto runs a predict job, the first if it has no name, into memory that is used again.
func (t *Trainer) PredictInto(ctx context.Context, job string, results *Tensors, feeds ...Tensor) error {
	return t.run(ctx, C.BRIDGE_PREDICT, job, results, feeds)
}

// fresh fills new results, closed where that fails.
func fresh(fill func(*Tensors) error) (*Tensors, error) {
	results := NewTensors()
	if err := fill(results); err != nil {
		results.Close()
		return nil, err
	}
	return results, nil
}

func (t *Trainer) run(ctx context.Context, what uint32, job string, results *Tensors, feeds []Tensor) error {
	var names texts
	defer names.free()
	named, err := names.textOrNil(job, BundleError)
	if err != nil {
		return err
	}
	return t.watched(ctx, func(raw *C.f2o_trainer) error {
		return call(what, unsafe.Pointer(raw), named, feeds, results)
	})
}

// watched runs what a context may end.
func (t *Trainer) watched(ctx context.Context, run func(*C.f2o_trainer) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return &Error{Kind: StoppedError, Message: "not begun: " + err.Error(), cause: err}
	}
	if ctx.Done() == nil {
		return run(t.raw)
	}
	raw, ended, watcher := t.raw, make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-ctx.Done():
			C.f2o_trainer_stop(raw, true)
			watcher <- true
		case <-ended:
			watcher <- false
		}
	}()
	err := run(raw)
	close(ended)
	if <-watcher { // only then it stops no later run
		C.f2o_trainer_stop(raw, false)
	}
	if refused, ok := err.(*Error); ok && refused.Kind == StoppedError {
		refused.cause = ctx.Err()
	}
	return err
}

// Steps is the number of steps made.
func (t *Trainer) Steps() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return 0
	}
	return int64(C.f2o_trainer_steps(t.raw))
}

// Rate is the rate that overrides the schedule; false while the schedule holds.
func (t *Trainer) Rate() (float64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw == nil {
		return 0, false
	}
	rate := float64(C.f2o_trainer_rate(t.raw))
	return rate, rate >= 0
}

// SetRate lets a rate override the schedule.
func (t *Trainer) SetRate(rate float64) error {
	return t.with(func(raw *C.f2o_trainer, _ *texts, message **C.char) (C.f2o_status, error) {
		return C.bridge_set_rate(raw, C.double(rate), message), nil
	})
}

// UseSchedule gives the rate back to the schedule.
func (t *Trainer) UseSchedule() error {
	return t.with(func(raw *C.f2o_trainer, _ *texts, message **C.char) (C.f2o_status, error) {
		return C.bridge_use_schedule(raw, message), nil
	})
}

// Freeze freezes these variables with their slots, and no others.
func (t *Trainer) Freeze(variables ...string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		list, err := names.list(variables, StateError)
		if err != nil {
			return 0, err
		}
		return C.bridge_freeze(raw, list, C.size_t(len(variables)), message), nil
	})
}

// IsFrozen is true if a variable, or a slot of it, is frozen.
func (t *Trainer) IsFrozen(variable string) bool {
	frozen := false
	err := t.with(func(raw *C.f2o_trainer, names *texts, _ **C.char) (C.f2o_status, error) {
		name, err := names.text(variable, StateError)
		if err == nil {
			frozen = bool(C.f2o_trainer_is_frozen(raw, name))
		}
		return C.F2O_OK, err
	})
	return err == nil && frozen
}

// Save writes the state: a file that appears whole or not at all.
func (t *Trainer) Save(path string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		where, err := names.text(path, FileError)
		if err != nil {
			return 0, err
		}
		return C.bridge_save(raw, where, message), nil
	})
}

// Load replaces the state by a saved one.
func (t *Trainer) Load(path string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		where, err := names.text(path, BundleError)
		if err != nil {
			return 0, err
		}
		return C.bridge_load(raw, where, message), nil
	})
}

// ExportAdapter writes the adapter that a bundle of adapters trains, as ONNX Runtime's file
// .onnx_adapter, which appears whole or not at all.
func (t *Trainer) ExportAdapter(path string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		where, err := names.text(path, FileError)
		if err != nil {
			return 0, err
		}
		return C.bridge_export_adapter(raw, where, message), nil
	})
}

// LoadAdapter goes on from an adapter of the same modules and ranks; the optimizer's slots stay.
func (t *Trainer) LoadAdapter(path string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		where, err := names.text(path, BundleError)
		if err != nil {
			return 0, err
		}
		return C.bridge_load_adapter(raw, where, message), nil
	})
}

// ExportPredict writes a predict job, the first if it has no name, with the present weights: a
// model for any ONNX Runtime.
func (t *Trainer) ExportPredict(folder, job string) error {
	return t.with(func(raw *C.f2o_trainer, names *texts, message **C.char) (C.f2o_status, error) {
		where, err := names.text(folder, FileError)
		if err != nil {
			return 0, err
		}
		named, err := names.textOrNil(job, BundleError)
		if err != nil {
			return 0, err
		}
		return C.bridge_export(raw, where, named, message), nil
	})
}

// State is the trainer's tensors, by name.
func (t *Trainer) State() State { return State{t} }

// State is a trainer's tensors, by name.
type State struct{ trainer *Trainer }

// Specs is what the state consists of.
func (s State) Specs() []Spec {
	return s.trainer.specs(func(raw *C.f2o_trainer, count *C.size_t) *C.f2o_spec {
		return C.f2o_state_specs(C.f2o_trainer_state(raw), count)
	})
}

// Read copies the tensors named; all without names.
func (s State) Read(names ...string) (*Tensors, error) {
	return fresh(func(values *Tensors) error {
		defer values.shrink()
		err := s.trainer.with(func(raw *C.f2o_trainer, made *texts, message **C.char) (C.f2o_status, error) {
			if len(names) == 0 {
				return C.bridge_read(raw, nil, 0, values.raw, message), nil
			}
			list, err := made.list(names, StateError)
			if err != nil {
				return 0, err
			}
			return C.bridge_read(raw, list, C.size_t(len(names)), values.raw, message), nil
		})
		if err == nil {
			values.fill()
		}
		return err
	})
}

// Write replaces some tensors. All are checked before any is written.
func (s State) Write(values ...Tensor) error { return s.put(C.BRIDGE_WRITE, values) }

// Replace replaces exactly all.
func (s State) Replace(values ...Tensor) error { return s.put(C.BRIDGE_REPLACE, values) }

func (s State) put(what uint32, values []Tensor) error {
	return s.trainer.with(func(raw *C.f2o_trainer, _ *texts, _ **C.char) (C.f2o_status, error) {
		return C.F2O_OK, call(what, unsafe.Pointer(raw), nil, values, nil)
	})
}
