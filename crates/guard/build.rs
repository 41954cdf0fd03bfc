//! Writes one jump stub for each name in `src/cuda/names.txt` and `src/nvml/names.txt`. The stubs are described in
//! `src/jump.rs`, which is where they are taken in.

use std::fmt::Write;
use std::path::Path;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo gives OUT_DIR");
    for front in ["cuda", "nvml"] {
        let list = format!("src/{front}/names.txt");
        println!("cargo:rerun-if-changed={list}");
        let text = std::fs::read_to_string(&list).unwrap_or_else(|error| panic!("{list}: {error}"));
        let names: Vec<&str> = text.lines().collect();
        assert!(
            names.is_sorted_by(|a, b| a < b),
            "{list} is not sorted, or names something twice"
        );
        let file = Path::new(&out).join(format!("{front}_stubs.rs"));
        std::fs::write(&file, stubs(&names)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
    println!("cargo:rerun-if-changed=build.rs");
}

fn stubs(names: &[&str]) -> String {
    let mut code = format!(
        "pub const NAMES: [&str; {}] = {names:?};\ncrate::jump::stubs! {{\n",
        names.len()
    );
    for (place, name) in names.iter().enumerate() {
        writeln!(code, "    {place} {name};").expect("a string takes everything");
    }
    code + "}\n"
}
