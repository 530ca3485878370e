//! Compiles the C runtime: of the release's one file in `c/`, or of the repository's `../c`.
//!
//! `CC`, `AR` and `CFLAGS` name other tools and flags, with `_<target>` behind them for one target.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let (header, sources) = find_sources(&root);
    println!("cargo:rerun-if-changed={}", header.display());
    let mut objects = Vec::new();
    for source in &sources {
        println!("cargo:rerun-if-changed={}", source.display());
        objects.push(compile(source, &header, &out));
    }
    let library = out.join("libflow2onnx_runtime.a");
    let _ = std::fs::remove_file(&library); // ar would keep what an earlier build left
    run(Command::new(tool("AR", "ar"))
        .arg("crs")
        .arg(&library)
        .args(&objects));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=flow2onnx_runtime");
    println!("cargo:rustc-link-lib=m");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-lib=dl");
    }
}

/// The folder of the header, and what to compile.
fn find_sources(root: &Path) -> (PathBuf, Vec<PathBuf>) {
    let packed = root.join("c");
    if packed.is_dir() {
        let source = packed.join("flow2onnx_runtime.c");
        return (packed, vec![source]);
    }
    let folder = root.join("../c");
    let parts = std::fs::read_dir(folder.join("src")).expect("the C runtime is in ../c/src");
    let mut sources: Vec<PathBuf> = parts
        .map(|part| part.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect();
    sources.sort();
    println!("cargo:rerun-if-changed={}", folder.join("src").display());
    (folder, sources)
}

/// The program for `CC` or `AR`.
fn tool(name: &str, usual: &str) -> String {
    variable(name).unwrap_or_else(|| usual.to_string())
}

/// A variable, first that of the target.
fn variable(name: &str) -> Option<String> {
    let target = env::var("TARGET").expect("cargo sets it").replace('-', "_");
    for name in [format!("{name}_{target}"), name.to_string()] {
        println!("cargo:rerun-if-env-changed={name}");
        if let Ok(value) = env::var(&name) {
            return Some(value);
        }
    }
    None
}

fn compile(source: &Path, header: &Path, out: &Path) -> PathBuf {
    let name = source.file_stem().expect("a file has a name");
    let object = out.join(name).with_extension("o");
    let flags = variable("CFLAGS").unwrap_or_default();
    run(Command::new(tool("CC", "cc"))
        .args(["-std=c11", "-O2", "-fPIC", "-DFLOW2ONNX_LOAD_ORT", "-I"])
        .arg(header)
        .args(flags.split_whitespace())
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object));
    object
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(
        matches!(&status, Ok(status) if status.success()),
        "{command:?} failed: {status:?}; a C compiler and ar are needed, CC and AR name them"
    );
}
