//! A bench with the layer laid out as a job finds it.

use std::path::PathBuf;
use std::process::Command;

use tenure_limits::SliceSpec;

use crate::bench::{Bench, layer};

const DRIVER: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";
const MANIFEST: &str = include_str!("../../../vulkan_layer.json");

pub struct Desk {
    pub bench: Bench,
    manifests: PathBuf,
}

impl Desk {
    pub fn new(slices: &[SliceSpec]) -> Desk {
        assert!(
            std::path::Path::new(DRIVER).exists(),
            "lavapipe is not installed; scripts/setup-devices installs it"
        );
        let bench = Bench::new(slices);
        let manifests = bench.dir.path().join("share/vulkan/implicit_layer.d");
        std::fs::create_dir_all(&manifests).unwrap();
        let manifest = MANIFEST.replace("/run/tenure/libtenure_guard.so", layer().to_str().unwrap());
        std::fs::write(manifests.join("tenure_guard.json"), manifest).unwrap();
        Desk { bench, manifests }
    }

    /// A program on a slice, the layer switched on by a variable alone.
    pub fn command(&self, slice: u64, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.bare(program);
        command
            .env("TENURE_GUARD_VULKAN", "1")
            .env("TENURE_GUARD_PAGE", &self.bench.page)
            .env("TENURE_GUARD_SLICE", slice.to_string())
            .env("TENURE_GUARD_DEVICE", "0:0");
        command
    }

    /// A program with the layer at hand and not switched on.
    pub fn bare(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("VK_ICD_FILENAMES", DRIVER)
            .env("XDG_DATA_HOME", self.bench.dir.path().join("share"))
            .env("XDG_RUNTIME_DIR", self.bench.dir.path())
            .env("HOME", self.bench.dir.path())
            // Of lavapipe's own threads one is enough.
            .env("LP_NUM_THREADS", "1");
        command
    }

    /// Asked for by its name, as an explicit layer.
    pub fn by_name(&self, slice: u64, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.command(slice, program);
        command
            .env_remove("TENURE_GUARD_VULKAN")
            .env_remove("XDG_DATA_HOME")
            .env("VK_LAYER_PATH", &self.manifests)
            .env("VK_INSTANCE_LAYERS", "VK_LAYER_TENURE_guard");
        command
    }
}
