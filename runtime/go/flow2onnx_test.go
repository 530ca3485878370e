package flow2onnx

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var (
	images = make([]float32, 160)
	labels = []int32{0, 1, 2, 3, 4, 5, 6, 7}
	ctx    = context.Background()
)

// bundle is the perceptron of the conformance traces, which FLOW2ONNX_BUNDLE names.
func bundle(t testing.TB) string {
	path := os.Getenv("FLOW2ONNX_BUNDLE")
	if path == "" {
		t.Skip("FLOW2ONNX_BUNDLE names no bundle")
	}
	return path
}

func open(t testing.TB) *Trainer {
	t.Helper()
	trainer, err := Open(bundle(t), &Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trainer.Close)
	return trainer
}

func feeds() []Tensor { return []Tensor{Of(images, 8, 20), Of(labels, 8)} }

// refused fails unless an error has that kind and a hint.
func refused(t *testing.T, kind Kind, err error) {
	t.Helper()
	var found *Error
	if !errors.As(err, &found) || found.Kind != kind || (found.Hint == "" && kind != StoppedError) {
		t.Errorf("wanted an error of kind %d with a hint, got %#v", kind, err)
	}
}

func TestShapes(t *testing.T) {
	trainer := open(t)
	for _, shape := range [][]int64{{8, 19}, {-8, -20}, {1 << 62, 1 << 62, 4}, {161}, {}} {
		_, err := trainer.Step(ctx, Of(images, shape...), Of(labels, 8))
		refused(t, FeedError, err)
	}
	if trainer.Steps() != 0 {
		t.Error("a refused step was made")
	}
	if tensor := Of([]float64{}, 0, 1000); tensor.err != nil {
		t.Error(tensor.err)
	}
	if tensor := Of([]bool{true}); tensor.err != nil || tensor.DType() != Bool {
		t.Error("a scalar has no sizes")
	}
}

func TestElements(t *testing.T) {
	trainer := open(t)
	results, err := trainer.Step(ctx, Of(labels, 8).Named("labels"), Of(images, 8, 20).Named("images"))
	if err != nil {
		t.Fatal(err)
	}
	losses, err := Elements[float32](results.Get("out/0"))
	if err != nil || len(losses) != 8 {
		t.Errorf("%v losses, %v", losses, err)
	}
	_, err = Elements[int32](results.At(0))
	refused(t, StateError, err)
	for _, none := range []Tensor{results.At(1), results.At(-1), results.Get("none"), results.Get("a\x00"), results.At(0).At(8), results.At(0).At(0).At(0)} {
		_, err = Elements[float32](none)
		refused(t, StateError, err)
	}
	_, err = trainer.Step(ctx, results.Get("none"), Of(labels, 8))
	refused(t, StateError, err)
	third, err := Elements[int32](Of(labels, 4, 2).At(1))
	if err != nil || third[0] != 2 || len(third) != 2 {
		t.Errorf("%v, %v", third, err)
	}
	results.Close()
	results.Close()
	refused(t, StateError, trainer.StepInto(ctx, results, feeds()...))
}

func TestViewsKeepTheirMemory(t *testing.T) {
	trainer := open(t)
	views := make([][]float32, 0, 200)
	for i := 0; i < cap(views); i++ {
		results, err := trainer.Evaluate(ctx, feeds()...)
		if err != nil {
			t.Fatal(err)
		}
		losses, _ := Elements[float32](results.At(0))
		views = append(views, losses)
		if i%2 == 0 {
			results.Close()
		}
		runtime.GC() // with the finalizers of what nobody holds
	}
	for _, losses := range views {
		for i, loss := range losses {
			if loss != views[0][i] {
				t.Fatal("a view was overwritten")
			}
		}
	}
}

func TestMoreArraysThanInPlace(t *testing.T) {
	trainer := open(t)
	many := make([]Tensor, 40)
	for i := range many {
		many[i] = Of(labels, 8).Named("labels")
	}
	_, err := trainer.Step(ctx, many...)
	refused(t, FeedError, err)
	if !strings.Contains(err.Error(), "takes 2 feeds, got 40") {
		t.Error(err)
	}
}

func TestStateAndSpecs(t *testing.T) {
	trainer := open(t)
	state := trainer.State()
	all, err := state.Read()
	if err != nil || all.Len() != len(state.Specs()) {
		t.Fatal(all, err)
	}
	if err := state.Replace(all.All()...); err != nil {
		t.Error(err)
	}
	some, err := state.Read("hidden-bias")
	if err != nil || some.Len() != 1 {
		t.Error(some, err)
	}
	_, err = state.Read("none")
	refused(t, StateError, err)
	refused(t, StateError, state.Write(Of(labels, 8)))
	refused(t, StateError, trainer.Freeze("none"))
	if trainer.Freeze("hidden-weight") != nil || !trainer.IsFrozen("hidden-weight-momentum") || trainer.IsFrozen("none") {
		t.Error("frozen")
	}
	if specs := trainer.Feeds(); specs[0].Name != "images" || specs[0].Shape[1] != 20 || specs[0].Symbols[0] != "" {
		t.Error(specs)
	}
	if trainer.Results()[0].DType.String() != "float32" {
		t.Error("results")
	}
}

func TestRequestsWithoutSense(t *testing.T) {
	_, err := Open("/none", nil)
	refused(t, BundleError, err)
	_, err = Open("a\x00b", nil)
	refused(t, BundleError, err)
	_, err = Open(bundle(t), &Options{Threads: -1})
	refused(t, OptionsError, err)
	_, err = Open(bundle(t), &Options{Library: "/none.so"})
	refused(t, RuntimeError, err)
	trainer := open(t)
	_, err = trainer.Step(ctx, Of(images, 8, 20).Named("a\x00b"), Of(labels, 8))
	refused(t, FeedError, err)
	refused(t, BundleError, trainer.PredictInto(ctx, "none", NewTensors()))
	trainer.Close()
	trainer.Close()
	_, err = trainer.Step(ctx, feeds()...)
	refused(t, StateError, err)
	if trainer.Steps() != 0 || trainer.Feeds() != nil {
		t.Error("a closed trainer has nothing")
	}
}

func TestContextEndsARun(t *testing.T) {
	trainer := open(t)
	ended, end := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		for {
			if _, err := trainer.Step(ended, feeds()...); err != nil {
				failed <- err
				return
			}
		}
	}()
	end()
	err := <-failed
	refused(t, StoppedError, err)
	if !errors.Is(err, context.Canceled) {
		t.Error("the context's error is the cause", err)
	}
	before := trainer.Steps()
	if _, err := trainer.Step(ctx, feeds()...); err != nil || trainer.Steps() != before+1 {
		t.Error("a later run is stopped", err)
	}
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := trainer.Step(live, feeds()...); err != nil {
		t.Error(err)
	}
}

func TestGoroutinesShareAPredictor(t *testing.T) {
	predictor, err := OpenPredictor(bundle(t), "", &Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer predictor.Close()
	run := func() float32 {
		results, err := predictor.Run(ctx, Of(images, 8, 20))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer results.Close()
		values, _ := Elements[float32](results.At(0))
		return values[3]
	}
	wanted := run()
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 50; i++ {
				if found := run(); found != wanted {
					t.Errorf("%g, not %g", found, wanted)
				}
			}
		}()
	}
	group.Wait()
	predictor.Stop(true)
	_, err = predictor.Run(ctx, Of(images, 8, 20))
	refused(t, StoppedError, err)
	predictor.Stop(false)
	run()
	if predictor.Feeds()[0].Name != "images" || len(predictor.Results()) != 1 {
		t.Error("specs")
	}
}

func TestEveryElementType(t *testing.T) {
	path := t.TempDir() + "/a.safetensors"
	tensors := []Tensor{
		Of([]float32{1}, 1).Named("f"), Of([]float64{1}, 1).Named("d"), Of([]int8{1}, 1).Named("a"),
		Of([]int16{1}, 1).Named("b"), Of([]int32{1}, 1).Named("c"), Of([]int64{1}, 1).Named("e"),
		Of([]uint8{1}, 1).Named("g"), Of([]uint16{1}, 1).Named("h"), Of([]uint32{1}, 1).Named("i"),
		Of([]uint64{1}, 1).Named("j"), Of([]bool{true}, 1).Named("k"), Of([]Half{0x3c00}, 1).Named("l"),
		Of([]Brain{0x3f80}, 1).Named("m"),
	}
	if err := SaveSafetensors(path, tensors...); err != nil {
		t.Fatal(err)
	}
	read, err := LoadSafetensors(path)
	if err != nil || read.Len() != len(tensors) {
		t.Fatal(read, err)
	}
	for _, one := range tensors {
		if found := read.Get(one.Name()); found.DType() != one.DType() || found.Bytes() != one.DType().Size() {
			t.Error(one.Name(), found.DType())
		}
	}
	refused(t, FileError, SaveSafetensors(t.TempDir(), tensors...))
	if err := os.WriteFile(path, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = LoadSafetensors(path)
	refused(t, BundleError, err)
}

func BenchmarkStep(b *testing.B) {
	trainer, results := open(b), NewTensors()
	for i := 0; i < b.N; i++ {
		if err := trainer.StepInto(ctx, results, Of(images, 8, 20), Of(labels, 8)); err != nil {
			b.Fatal(err)
		}
	}
}
