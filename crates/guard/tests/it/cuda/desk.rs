//! A bench with the fronts laid out as a job finds them: the guard's file under the driver's names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tenure_limits::SliceSpec;

use crate::bench::{Bench, layer};
use crate::worker::{Worker, own};

/// The double of the driver. `cargo test` builds it beside the tests; where only this binary was asked for, it is
/// built here.
pub fn double() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = own().with_file_name("../examples/libcuda_double.so");
        if !is_newer_than_its_source(&library) {
            build_double();
        }
        library.canonicalize().expect("the double stands beside the test")
    })
}

fn is_newer_than_its_source(library: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cuda_double");
    let mut files = std::fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    changed(library).is_some_and(|built| files.all(|file| changed(&file) <= Some(built)))
}

fn build_double() {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo says to a test of its package makes some packages build themselves anew.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG") || name.starts_with("CARGO_MANIFEST") {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--offline", "--package", "tenure-guard"])
        .args(["--example", "cuda_double"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the double was not built");
}

pub struct Desk {
    pub bench: Bench,
    /// Where the driver's names lead to the guard.
    pub libraries: PathBuf,
}

impl Desk {
    pub fn new(slices: &[SliceSpec]) -> Desk {
        let bench = Bench::new(slices);
        let libraries = bench.dir.path().join("lib");
        std::fs::create_dir(&libraries).unwrap();
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            symlink(layer(), libraries.join(name)).unwrap();
        }
        Desk { bench, libraries }
    }

    /// A program on a slice. No context is charged, so that tests count what they ask for; one asks for the charge.
    pub fn command(&self, slice: u64, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("TENURE_GUARD_CUDA_DRIVER", double())
            .env("TENURE_GUARD_NVML_DRIVER", double())
            .env("TENURE_GUARD_CUDA_CONTEXT_MIB", "0")
            .env("TENURE_GUARD_PAGE", &self.bench.page)
            .env("TENURE_GUARD_SLICE", slice.to_string())
            .env("TENURE_GUARD_DEVICE", "0:0");
        command
    }

    /// A part of this binary on a slice, run to its end.
    pub fn run(&self, part: &str) -> String {
        let mut command = self.command(1, own());
        command.env("RUST_BACKTRACE", "0");
        let (code, said) = Worker::start(command, part, &[]).end();
        assert_eq!(code, Some(0), "{said}");
        said
    }

    pub fn used(&self, slice: u64) -> u64 {
        self.bench.reading(slice).used_bytes
    }
}
