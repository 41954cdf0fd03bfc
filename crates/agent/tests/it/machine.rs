//! A machine laid out in a directory: files as the kernel shows them, and a driver library that answers from a
//! profile. Nothing of the real one is looked at, except where a test wants it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tenure_agent::discover::{Device, Found};
use tenure_domain::schedule::hardware::Hardware;

use crate::bench::AGENT;

pub struct Machine {
    pub root: tempfile::TempDir,
    pub patience_ms: u64,
    opencl: bool,
}

/// A double of a driver library. `cargo test` builds it beside the tests; where only this binary was asked for, it is
/// built here, by one test at a time.
pub fn double(name: &'static str) -> PathBuf {
    static BUILT: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let library = Path::new(AGENT)
        .parent()
        .unwrap()
        .join(format!("examples/lib{name}.so"));
    if !is_newer_than_its_source(&library, name) {
        build_double(name);
    }
    assert!(library.exists(), "{} is missing", library.display());
    library
}

fn is_newer_than_its_source(library: &Path, name: &str) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let mut files = std::fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    changed(library).is_some_and(|built| files.all(|file| changed(&file) <= Some(built)))
}

fn build_double(name: &str) {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo says to a test of its package makes some packages build themselves anew.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG") || name.starts_with("CARGO_MANIFEST") {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--offline", "--package", "tenure-agent"])
        .args(["--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the double was not built");
}

impl Machine {
    pub fn new() -> Machine {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        Machine {
            root,
            patience_ms: 60_000,
            opencl: false,
        }
    }

    /// With what OpenCL finds on the real machine.
    pub fn with_opencl(mut self) -> Machine {
        self.opencl = true;
        self
    }

    /// A file, and the directories above it.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A character device, with nothing behind it.
    pub fn device(&self, path: &str, major: u32, minor: u32) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let numbers = [major, minor].map(|number| number.to_string());
        let made = Command::new("mknod")
            .arg("-m666")
            .arg(path)
            .arg("c")
            .args(numbers)
            .status();
        assert!(made.unwrap().success());
    }

    pub fn remove(&self, path: &str) {
        let path = self.root.path().join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// What the NVML double says from now on. The file is replaced whole, since somebody may be reading it.
    pub fn nvml(&self, profile: &serde_json::Value) {
        self.file("profile.new", profile.to_string());
        let new = self.root.path().join("profile.new");
        std::fs::rename(new, self.profile()).unwrap();
    }

    fn profile(&self) -> PathBuf {
        self.root.path().join("profile.json")
    }

    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("TENURE_DEVICE_ROOT", self.root.path().display().to_string()),
            ("TENURE_DRIVER_PATIENCE_MS", self.patience_ms.to_string()),
        ];
        if self.profile().exists() {
            variables.push(("TENURE_NVML_LIBRARY", double("nvml_double").display().to_string()));
            variables.push(("TENURE_NVML_PROFILE", self.profile().display().to_string()));
        } else {
            variables.push(("TENURE_NVML_LIBRARY", "/nonexistent/nvml".to_owned()));
        }
        if !self.opencl {
            variables.push(("TENURE_OPENCL_LIBRARY", "/nonexistent/opencl".to_owned()));
        }
        variables
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(AGENT)
            .args(arguments)
            .envs(self.variables())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What discovery finds on it.
    pub fn found(&self) -> Found {
        let found: Found = serde_json::from_str(&self.run(&["discover", "all", "host"])).unwrap();
        found
            .inventory()
            .check()
            .expect("the server takes what was found");
        found
    }

    pub fn doctor(&self) -> String {
        self.run(&["doctor"])
    }
}

pub fn hardware(device: &Device) -> &Hardware {
    device.facts.hardware.as_deref().unwrap()
}

/// The levels it gives, by their words.
pub fn levels(device: &Device) -> Vec<&'static str> {
    device
        .facts
        .isolation
        .keys()
        .map(|level| level.as_str())
        .collect()
}

/// Whether some note has all these words.
pub fn noted(found: &Found, words: &[&str]) -> bool {
    found
        .notes
        .iter()
        .any(|note| words.iter().all(|word| note.contains(word)))
}
