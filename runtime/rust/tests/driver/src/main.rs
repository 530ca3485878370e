//! Does what the lines of its input say and answers each with one line: `runtime/c/tests/driver.c`
//! has the words.

use flow2onnx::{
    load_safetensors, save_safetensors, DType, Error, Optimization, Options, Predictor, Result,
    Spec, Stopper, Tensor, Tensors, Trainer,
};
use std::io::{self, BufRead, Write};
use std::time::Instant;

#[derive(Default)]
struct Session {
    options: Options,
    trainer: Option<Trainer>,
    stopper: Option<Stopper>,
    predictor: Option<Predictor>,
    feeds: Tensors,
    results: Tensors,
}

fn value_at(tensor: &Tensor<'_>, index: usize) -> Result<f64> {
    Ok(match tensor.dtype() {
        DType::Float32 => tensor.elements::<f32>()?[index] as f64,
        DType::Float64 => tensor.elements::<f64>()?[index],
        DType::Int64 => tensor.elements::<i64>()?[index] as f64,
        DType::Int32 => tensor.elements::<i32>()?[index] as f64,
        _ => f64::from(tensor.bytes()[index]),
    })
}

fn shown(results: &Tensors) -> Result<String> {
    let mut text = String::new();
    for tensor in results.iter() {
        text += &format!(" {}", tensor.name().unwrap_or(""));
        let count = tensor.bytes().len() / tensor.dtype().size();
        for index in 0..count.min(16) {
            text += &format!(" {}", value_at(&tensor, index)?);
        }
    }
    Ok(text)
}

/// Batch `index` of each feed that the specs name.
fn batch<'a>(feeds: &'a Tensors, specs: &[Spec<'_>], index: usize) -> Result<Vec<Tensor<'a>>> {
    let mut found = Vec::new();
    for spec in specs {
        let Some(all) = feeds.iter().find(|feed| feed.name() == Some(spec.name)) else {
            continue;
        };
        if all
            .shape()
            .first()
            .is_some_and(|count| *count > index as i64)
        {
            found.push(all.at(index)?);
        }
    }
    Ok(found)
}

fn nothing_open() -> Error {
    // any error that says so
    Tensors::new().at(0).unwrap_err()
}

impl Session {
    fn setting(&mut self, words: &[&str]) -> Option<Result<bool>> {
        let first = words.get(1).copied().unwrap_or("");
        let on = first == "1";
        match words[0] {
            "threads" => self.options.threads = first.parse().unwrap_or(-1),
            "finite" => self.options.finite_losses = on,
            "ort" => self.options.ort_format = on,
            "library" => self.options.library = Some(first.into()),
            "optimize" => {
                self.options.optimization = match first {
                    "0" => Optimization::All,
                    "1" => Optimization::Extended,
                    "2" => Optimization::Basic,
                    _ => Optimization::None,
                }
            }
            "close" => self.trainer = None,
            _ => return None,
        }
        Some(Ok(false))
    }

    fn files(&mut self, words: &[&str]) -> Option<Result<bool>> {
        let first = words.get(1).copied().unwrap_or("");
        Some(match words[0] {
            "open" => self.open(first).map(|()| false),
            "predictor" => {
                self.predictor = None;
                Predictor::open(first, &self.options).map(|opened| {
                    self.predictor = Some(opened);
                    false
                })
            }
            "feeds" => load_safetensors(first).map(|read| {
                self.feeds = read;
                false
            }),
            "tensors" => load_safetensors(first).map(|read| {
                self.results = read;
                true
            }),
            "copy" => load_safetensors(first).and_then(|read| {
                let all: Vec<_> = read.iter().collect();
                save_safetensors(words[2], &all).map(|()| false)
            }),
            "run" => self.run(first).map(|()| true),
            _ => return None,
        })
    }

    fn open(&mut self, path: &str) -> Result<()> {
        self.trainer = None;
        let opened = Trainer::open(path, &self.options)?;
        self.stopper = Some(opened.stopper());
        self.trainer = Some(opened);
        Ok(())
    }

    fn run(&mut self, path: &str) -> Result<()> {
        let given = load_safetensors(path)?;
        let feeds: Vec<_> = given.iter().collect();
        let predictor = self.predictor.as_ref().ok_or_else(nothing_open)?;
        predictor.run_into(&feeds, &mut self.results)
    }

    fn batches(&mut self, words: &[&str]) -> Option<Result<bool>> {
        let index = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let (feeds, results) = (&self.feeds, &mut self.results);
        let trainer = self.trainer.as_mut()?;
        let of_step = |trainer: &Trainer| batch(feeds, &trainer.feeds(), index);
        let done = match words[0] {
            "step" => of_step(trainer).and_then(|given| trainer.step_into(&given, results)),
            "evaluate" => of_step(trainer).and_then(|given| trainer.evaluate_into(&given, results)),
            "accumulate" => {
                of_step(trainer).and_then(|given| trainer.accumulate_into(&given, results))
            }
            "predict" => batch(feeds, &self.predictor.as_ref()?.feeds(), index)
                .and_then(|given| trainer.predict_into(None, &given, results)),
            _ => return None,
        };
        Some(done.map(|()| true))
    }

    fn requests(&mut self, words: &[&str]) -> Option<Result<bool>> {
        let first = words.get(1).copied().unwrap_or("");
        if words[0] == "stop" {
            self.stopper.as_ref()?.stop(first == "1");
            if let Some(predictor) = &self.predictor {
                predictor.stop(first == "1");
            }
            return Some(Ok(false));
        }
        let trainer = self.trainer.as_mut()?;
        let done = match words[0] {
            "update" => trainer.update(),
            "rate" => trainer.set_rate(first.parse().unwrap_or(f64::NAN)),
            "schedule" => trainer.use_schedule(),
            "freeze" => trainer.freeze(&words[1..]),
            "save" => trainer.save(first),
            "load" => trainer.load(first),
            "adapter" => trainer.export_adapter(first),
            "from" => trainer.load_adapter(first),
            "export" => trainer.export_predict(first, None),
            "state" => trainer.state().read().and_then(|values| {
                let all: Vec<_> = values.iter().collect();
                save_safetensors(first, &all)
            }),
            "put" => load_safetensors(first).and_then(|values| {
                let all: Vec<_> = values.iter().collect();
                trainer.state().write(&all)
            }),
            "replace" => load_safetensors(first).and_then(|values| {
                let all: Vec<_> = values.iter().collect();
                trainer.state().replace(&all)
            }),
            _ => return None,
        };
        Some(done.map(|()| false))
    }

    /// Nanoseconds of one step on the first batch.
    fn time(&mut self, steps: u32) -> Result<u128> {
        let trainer = self.trainer.as_mut().ok_or_else(nothing_open)?;
        let given = batch(&self.feeds, &trainer.feeds(), 0)?;
        let start = Instant::now();
        for _ in 0..steps {
            trainer.step_into(&given, &mut self.results)?;
        }
        Ok(start.elapsed().as_nanos() / u128::from(steps))
    }

    fn answer(&mut self, words: &[&str]) -> String {
        if let (["steps"], Some(trainer)) = (words, &self.trainer) {
            let rate = trainer.rate().unwrap_or(-1.0);
            return format!("ok {} {rate} {}", trainer.steps(), trainer.accumulated());
        }
        if let ["time", steps] = words {
            let steps = steps.parse().expect("a number");
            return match self.time(steps) {
                Ok(nanoseconds) => format!("ok {nanoseconds}"),
                Err(error) => format!("error 99 {error}"),
            };
        }
        let done = None
            .or_else(|| self.setting(words))
            .or_else(|| self.files(words))
            .or_else(|| self.batches(words))
            .or_else(|| self.requests(words));
        match done {
            None => format!("error 99 {} is unknown, or nothing is open", words[0]),
            Some(Ok(false)) => "ok".to_string(),
            Some(Ok(true)) => match shown(&self.results) {
                Ok(text) => format!("ok{text}"),
                Err(error) => format!("error 99 {error}"),
            },
            Some(Err(error)) => {
                let (kind, hint) = (error.kind() as i32, error.hint());
                format!("error {kind} {}|  {hint}", error.message())
            }
        }
    }
}

fn main() {
    let mut session = Session::default();
    for line in io::stdin().lock().lines() {
        let line = line.expect("lines of text");
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.is_empty() {
            println!("{}", session.answer(&words));
            io::stdout().flush().expect("someone who listens");
        }
    }
}
