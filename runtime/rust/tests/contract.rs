//! What the crate adds to C: views that live no longer than their memory, types that are checked,
//! threads. The contract itself is tested for all languages at once.

use flow2onnx::{BFloat16, DType, Float16, Kind, Options, Predictor, Tensor, Tensors, Trainer};
use std::path::PathBuf;
use std::thread;

fn bundle() -> PathBuf {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/mlp/bundle");
    std::env::var_os("FLOW2ONNX_BUNDLE").map_or_else(|| own.into(), PathBuf::from)
}

fn options() -> Options {
    Options {
        threads: 1,
        ..Options::default()
    }
}

const LABELS: [i32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn a_shape_must_fit() {
    for shape in [
        &[8, 19][..],
        &[-8, -20],
        &[i64::MAX, i64::MAX, 4],
        &[161],
        &[],
    ] {
        let error = Tensor::new(&[0.5_f32; 160], shape).unwrap_err();
        assert_eq!(error.kind(), Kind::Feed);
        assert!(!error.hint().is_empty());
    }
    assert!(Tensor::new::<f64>(&[], &[0, 1000]).is_ok());
    assert!(Tensor::new(&[2.5_f64], &[]).is_ok());
}

#[test]
fn elements_are_read_as_what_they_are() {
    let whole = [1_i64, 2];
    let tensor = Tensor::new(&whole, &[2]).unwrap();
    assert_eq!(tensor.elements::<i64>().unwrap(), &whole);
    assert_eq!(tensor.elements::<f64>().unwrap_err().kind(), Kind::State);
    assert_eq!(tensor.at(1).unwrap().elements::<i64>().unwrap(), &[2]);
    assert!(tensor.at(2).is_err());
    assert!(tensor.at(0).unwrap().at(0).is_err());
    let odd = [1_u8, 0, 2];
    let bools = Tensor::from_bytes(DType::Bool, &odd, &[3]).unwrap();
    assert!(bools.elements::<bool>().is_err(), "2 is no bool");
    let bools = Tensor::from_bytes(DType::Bool, &odd[..2], &[2]).unwrap();
    assert_eq!(bools.elements::<bool>().unwrap(), &[true, false]);
    let halves = [Float16(0x3c00)];
    let tensor = Tensor::new(&halves, &[1]).unwrap();
    assert!(tensor.elements::<BFloat16>().is_err());
    assert_eq!(tensor.elements::<Float16>().unwrap(), &halves);
    let bytes = [0_u8; 9];
    let shifted = &bytes[bytes.as_ptr().align_offset(4) + 1..][..4];
    let tensor = Tensor::from_bytes(DType::Float32, shifted, &[1]).unwrap();
    assert!(tensor.elements::<f32>().is_err(), "it is not aligned");
}

#[test]
fn results_are_found_or_missed() {
    let mut trainer = Trainer::open(bundle(), &options()).unwrap();
    let images = vec![0.5_f32; 160];
    let results = trainer
        .step(&[
            Tensor::new(&LABELS, &[8]).unwrap().named("labels"),
            Tensor::new(&images, &[8, 20]).unwrap().named("images"),
        ])
        .unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results.get("out/0").unwrap().shape(), &[8]);
    assert!(results.get("none").is_err());
    assert!(results.get("a\0b").is_err());
    assert!(results.at(1).is_err());
    assert!(Tensors::default().is_empty());
    let feeds = trainer.feeds();
    assert_eq!((feeds[0].name, feeds[0].shape), ("images", &[8, 20][..]));
    assert_eq!(feeds[0].symbols, [None, None]);
    assert_eq!(trainer.results()[0].dtype, DType::Float32);
}

#[test]
fn requests_without_sense() {
    let error = Trainer::open("/none", &options()).unwrap_err();
    assert_eq!(error.kind(), Kind::Bundle);
    assert!(error.to_string().starts_with("/none"));
    assert!(Trainer::open("a\0b", &options()).is_err());
    let mut trainer = Trainer::open(bundle(), &options()).unwrap();
    let images = [0.5_f32; 160];
    let odd = Tensor::new(&images, &[8, 20]).unwrap().named("a\0b");
    assert_eq!(trainer.step(&[odd]).unwrap_err().kind(), Kind::Feed);
    assert_eq!(trainer.step(&[]).unwrap_err().kind(), Kind::Feed);
    assert_eq!(trainer.freeze(&["none"]).unwrap_err().kind(), Kind::State);
    trainer.freeze(&["hidden-weight"]).unwrap();
    assert!(trainer.is_frozen("hidden-weight-momentum"));
    assert!(!trainer.is_frozen("none"));
    assert_eq!(trainer.rate(), None);
    trainer.set_rate(0.5).unwrap();
    assert_eq!(trainer.rate(), Some(0.5));
    let mut state = trainer.state();
    assert_eq!(state.read().unwrap().len(), state.specs().len());
    assert_eq!(state.read_some(&["hidden-bias"]).unwrap().len(), 1);
    assert!(state.read_some(&[]).unwrap().is_empty());
    let unnamed = Tensor::new(&LABELS, &[8]).unwrap();
    assert_eq!(state.write(&[unnamed]).unwrap_err().kind(), Kind::State);
    let missing = trainer.predict_into(Some("none"), &[], &mut Tensors::new());
    assert_eq!(missing.unwrap_err().kind(), Kind::Bundle);
}

#[test]
fn threads_share_a_predictor() {
    let predictor = Predictor::open(bundle(), &options()).unwrap();
    let images = vec![0.5_f32; 160];
    let run = || {
        let feed = Tensor::new(&images, &[8, 20]).unwrap();
        let results = predictor.run(&[feed]).unwrap();
        results.at(0).unwrap().elements::<f32>().unwrap().to_vec()
    };
    let wanted = run();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(run(), wanted)));
        }
    });
}

#[test]
fn a_thread_is_stopped_by_another() {
    let mut trainer = Trainer::open(bundle(), &options()).unwrap();
    let stopper = trainer.stopper();
    let images = vec![0.5_f32; 160];
    let feeds = [
        Tensor::new(&images, &[8, 20]).unwrap(),
        Tensor::new(&LABELS, &[8]).unwrap(),
    ];
    thread::scope(|scope| {
        let steps = scope.spawn(|| loop {
            if let Err(error) = trainer.step(&feeds) {
                return error.kind();
            }
        });
        stopper.stop(true);
        assert_eq!(steps.join().unwrap(), Kind::Stopped);
    });
    stopper.stop(false);
    let before = trainer.steps();
    trainer.step(&feeds).unwrap();
    assert_eq!(trainer.steps(), before + 1);
    drop(trainer);
    stopper.stop(true); // nothing is there any more
}
