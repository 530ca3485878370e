// Does what the lines of its input say and answers each with one line: runtime/c/tests/driver.c has
// the words.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"flow2onnx"
)

type session struct {
	options   flow2onnx.Options
	trainer   *flow2onnx.Trainer
	predictor *flow2onnx.Predictor
	feeds     *flow2onnx.Tensors
	results   *flow2onnx.Tensors
	ctx       context.Context
}

var (
	errNothing  = errors.New("it is unknown, or nothing is open")
	stopped, do = context.WithCancel(context.Background())
)

func numbers[T flow2onnx.Element](t flow2onnx.Tensor, show func(T) string) string {
	values, err := flow2onnx.Elements[T](t)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := 0; i < len(values) && i < 16; i++ {
		text.WriteString(" " + show(values[i]))
	}
	return text.String()
}

func shown(results *flow2onnx.Tensors) string {
	var text strings.Builder
	for _, t := range results.All() {
		text.WriteString(" " + t.Name())
		switch t.DType() {
		case flow2onnx.Float32:
			text.WriteString(numbers(t, func(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }))
		case flow2onnx.Float64:
			text.WriteString(numbers(t, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }))
		case flow2onnx.Int64:
			text.WriteString(numbers(t, func(v int64) string { return strconv.FormatInt(v, 10) }))
		case flow2onnx.Int32:
			text.WriteString(numbers(t, func(v int32) string { return strconv.FormatInt(int64(v), 10) }))
		default:
			text.WriteString(" " + t.DType().String())
		}
	}
	return text.String()
}

// batch is element `index` of each feed that the specs name.
func (s *session) batch(specs []flow2onnx.Spec, index int) []flow2onnx.Tensor {
	var found []flow2onnx.Tensor
	if s.feeds == nil {
		return nil
	}
	for _, spec := range specs {
		for _, all := range s.feeds.All() {
			if all.Name() == spec.Name && len(all.Shape()) > 0 && int64(index) < all.Shape()[0] {
				found = append(found, all.At(index))
			}
		}
	}
	return found
}

// setting does what needs nothing that is open; false if it is none of these.
func (s *session) setting(words []string) (string, error, bool) {
	first := words[len(words)-1]
	number, _ := strconv.Atoi(first)
	var err error
	switch words[0] {
	case "threads":
		s.options.Threads = number
	case "optimize":
		s.options.Optimization = flow2onnx.Optimization(number)
	case "finite":
		s.options.FiniteLosses = number != 0
	case "ort":
		s.options.ORTFormat = number != 0
	case "library":
		s.options.Library = first
	case "open":
		if s.trainer != nil {
			s.trainer.Close()
		}
		s.trainer, err = flow2onnx.Open(first, &s.options)
	case "predictor":
		if s.predictor != nil {
			s.predictor.Close()
		}
		s.predictor, err = flow2onnx.OpenPredictor(first, "", &s.options)
	case "feeds":
		s.feeds, err = flow2onnx.LoadSafetensors(first)
	case "tensors":
		var read *flow2onnx.Tensors
		if read, err = flow2onnx.LoadSafetensors(first); err == nil {
			return shown(read), nil, true
		}
	case "copy":
		var read *flow2onnx.Tensors
		if read, err = flow2onnx.LoadSafetensors(words[1]); err == nil {
			err = flow2onnx.SaveSafetensors(first, read.All()...)
		}
	default:
		return "", nil, false
	}
	return "", err, true
}

// batches does what takes feeds.
func (s *session) batches(words []string) (string, error, bool) {
	index, _ := strconv.Atoi(words[len(words)-1])
	var err error
	if words[0] == "run" && s.predictor != nil {
		var given *flow2onnx.Tensors
		if given, err = flow2onnx.LoadSafetensors(words[1]); err == nil {
			err = s.predictor.RunInto(s.ctx, s.results, given.All()...)
		}
		return shown(s.results), err, true
	}
	if s.trainer == nil {
		return "", nil, false
	}
	given := s.batch(s.trainer.Feeds(), index)
	switch words[0] {
	case "step":
		err = s.trainer.StepInto(s.ctx, s.results, given...)
	case "evaluate":
		err = s.trainer.EvaluateInto(s.ctx, s.results, given...)
	case "accumulate":
		err = s.trainer.AccumulateInto(s.ctx, s.results, given...)
	case "predict":
		if s.predictor == nil {
			return "", nil, false
		}
		given = s.batch(s.predictor.Feeds(), index)
		err = s.trainer.PredictInto(s.ctx, "", s.results, given...)
	default:
		return "", nil, false
	}
	return shown(s.results), err, true
}

// time makes steps on the first batch and says what one takes, in nanoseconds.
func (s *session) time(count string) (string, error) {
	steps, _ := strconv.Atoi(count)
	given := s.batch(s.trainer.Feeds(), 0)
	start := time.Now()
	for i := 0; i < steps; i++ {
		if err := s.trainer.StepInto(s.ctx, s.results, given...); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf(" %d", time.Since(start).Nanoseconds()/int64(steps)), nil
}

// request does what changes or saves a trainer.
func (s *session) request(words []string) (string, error, bool) {
	if s.trainer == nil {
		return "", nil, false
	}
	t, first := s.trainer, words[len(words)-1]
	var err error
	var read *flow2onnx.Tensors
	switch words[0] {
	case "time":
		said, err := s.time(first)
		return said, err, true
	case "close":
		t.Close()
		s.trainer = nil
	case "steps":
		rate, set := t.Rate()
		if !set {
			rate = -1
		}
		return fmt.Sprintf(" %d %g %d", t.Steps(), rate, t.Accumulated()), nil, true
	case "stop":
		s.ctx = context.Background()
		if first == "1" {
			s.ctx = stopped
		}
	case "update":
		err = t.Update(s.ctx)
	case "rate":
		rate, _ := strconv.ParseFloat(first, 64)
		err = t.SetRate(rate)
	case "schedule":
		err = t.UseSchedule()
	case "freeze":
		err = t.Freeze(words[1:]...)
	case "save":
		err = t.Save(first)
	case "load":
		err = t.Load(first)
	case "adapter":
		err = t.ExportAdapter(first)
	case "from":
		err = t.LoadAdapter(first)
	case "export":
		err = t.ExportPredict(first, "")
	case "state":
		if read, err = t.State().Read(); err == nil {
			err = flow2onnx.SaveSafetensors(first, read.All()...)
		}
	case "put", "replace":
		if read, err = flow2onnx.LoadSafetensors(first); err == nil && words[0] == "put" {
			err = t.State().Write(read.All()...)
		} else if err == nil {
			err = t.State().Replace(read.All()...)
		}
	default:
		return "", nil, false
	}
	return "", err, true
}

func (s *session) answer(words []string) string {
	for _, act := range []func([]string) (string, error, bool){s.setting, s.batches, s.request} {
		said, err, known := act(words)
		if !known {
			continue
		}
		var refused *flow2onnx.Error
		if errors.As(err, &refused) {
			return fmt.Sprintf("error %d %s|  %s", refused.Kind, refused.Message, refused.Hint)
		}
		return "ok" + said
	}
	return fmt.Sprintf("error 99 %s: %v", words[0], errNothing)
}

func main() {
	do() // what is stopped is stopped from the first
	s := &session{results: flow2onnx.NewTensors(), ctx: context.Background()}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 0 {
			fmt.Println(s.answer(words))
		}
	}
}
