//! The fronts of NVIDIA's libraries: where the host has one, a job that shares a device finds the guard in its place,
//! and the guard finds the library under a path of its own. Jobs that share a device get them, of the host's files.
//!
//! Deliberately absent: what a front does (guard), and images, which bring no driver of their own.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::root::{Bound, TENURE_DIR};

/// The one by which programs reach the device itself.
const DRIVER: &str = "libcuda.so.1";

/// Names of libraries that the guard stands for, and the variables that tell it where the library is.
const NAMES: [(&str, &str); 2] = [
    (DRIVER, "TENURE_GUARD_CUDA_DRIVER"),
    ("libnvidia-ml.so.1", "TENURE_GUARD_NVML_DRIVER"),
];

/// Where distributions put them.
const DIRS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
];

/// One library that the guard stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Front {
    pub name: String,
    /// The file itself, behind all links.
    pub library: PathBuf,
    pub variable: String,
}

/// The libraries this host has, in the directory said or where they usually are.
pub fn on_this_host(dir: Option<&Path>) -> Vec<Front> {
    let usual = DIRS.map(Path::new);
    let dirs = match &dir {
        Some(dir) => std::slice::from_ref(dir),
        None => &usual[..],
    };
    let find = |(name, variable): (&str, &str)| {
        let library = dirs
            .iter()
            .find_map(|dir| std::fs::canonicalize(dir.join(name)).ok())?;
        Some(Front {
            name: name.to_owned(),
            library,
            variable: variable.to_owned(),
        })
    };
    NAMES.into_iter().filter_map(find).collect()
}

impl Front {
    /// Those that reach a device: whoever has one without the guard is past it.
    pub fn drivers(fronts: &[Front]) -> Vec<PathBuf> {
        let drivers = fronts.iter().filter(|front| front.name == DRIVER);
        drivers.map(|front| front.library.clone()).collect()
    }

    /// The library under a path of its own, then the guard in its place.
    pub fn bound(&self, guard: &Path) -> [Bound; 2] {
        [
            Bound {
                from: self.library.clone(),
                to: self.moved(),
                writable: false,
            },
            Bound {
                from: guard.to_owned(),
                to: self.library.clone(),
                writable: false,
            },
        ]
    }

    pub fn variable(&self) -> (String, String) {
        (self.variable.clone(), self.moved().display().to_string())
    }

    fn moved(&self) -> PathBuf {
        Path::new(TENURE_DIR).join(format!("driver-{}", self.name))
    }
}

/// What names the guard to Vulkan loaders: a file of this name and content, in a directory of its own.
pub fn vulkan_file() -> (&'static str, &'static str) {
    (
        "tenure_guard.json",
        include_str!("../../../guard/vulkan_layer.json"),
    )
}

/// The directory with that file, as jobs find it.
pub const VULKAN_DIR: &str = "/run/tenure/vulkan";

/// The variables that make Vulkan loaders take the guard up.
pub fn vulkan_variables() -> [(String, String); 2] {
    [
        ("VK_ADD_LAYER_PATH".to_owned(), VULKAN_DIR.to_owned()),
        (
            "VK_INSTANCE_LAYERS".to_owned(),
            "VK_LAYER_TENURE_guard".to_owned(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_host_has_gets_a_front() {
        let dir = tempfile::tempdir().unwrap();
        assert!(on_this_host(Some(dir.path())).is_empty());
        std::fs::write(dir.path().join("libcuda.so.560"), "").unwrap();
        std::os::unix::fs::symlink("libcuda.so.560", dir.path().join("libcuda.so.1")).unwrap();
        let fronts = on_this_host(Some(dir.path()));
        let file = dir.path().canonicalize().unwrap().join("libcuda.so.560");
        assert_eq!(fronts.len(), 1);
        let [moved, guard] = fronts[0].bound(Path::new("/guard.so"));
        assert_eq!((moved.from, guard.to), (file.clone(), file), "behind the link");
        assert_eq!(
            fronts[0].variable(),
            (
                "TENURE_GUARD_CUDA_DRIVER".to_owned(),
                "/run/tenure/driver-libcuda.so.1".to_owned()
            )
        );
    }

    #[test]
    fn the_vulkan_loader_is_told_the_guards_path_in_a_job() {
        let (_, text) = vulkan_file();
        let manifest: serde_json::Value = serde_json::from_str(text).unwrap();
        let library = &manifest["layer"]["library_path"];
        assert_eq!(
            library,
            &format!("{TENURE_DIR}/{}", crate::isolate::guard::LIBRARY)
        );
        assert!(VULKAN_DIR.starts_with(TENURE_DIR));
    }
}
