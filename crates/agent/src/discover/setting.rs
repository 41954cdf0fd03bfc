//! Where discovery looks: the root of the files it reads and the driver libraries it loads.
//!
//! On a machine in service nothing is set. Tests lay out a root of their own and load doubles.

use std::path::PathBuf;
use std::time::Duration;

const ROOT: &str = "TENURE_DEVICE_ROOT";
const NVML: &str = "TENURE_NVML_LIBRARY";
const OPENCL: &str = "TENURE_OPENCL_LIBRARY";
const CHECKPOINT: &str = "TENURE_CUDA_CHECKPOINT";
/// Where NVIDIA's program for setting programs aside is looked for, below the root.
const CHECKPOINT_PLACES: [&str; 3] = [
    "usr/bin/cuda-checkpoint",
    "usr/local/bin/cuda-checkpoint",
    "usr/local/cuda/bin/cuda-checkpoint",
];
const PATIENCE: &str = "TENURE_DRIVER_PATIENCE_MS";
/// What begins so is for the NVML library itself and reaches it unread.
const FOR_NVML: &str = "TENURE_NVML_";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Above `sys`, `dev`, `proc` and `etc`.
    pub root: PathBuf,
    pub nvml_library: PathBuf,
    pub opencl_library: PathBuf,
    /// NVIDIA's `cuda-checkpoint`, where somebody said which.
    pub checkpoint_program: Option<PathBuf>,
    /// How long a driver may take to answer.
    pub patience: Duration,
    for_nvml: Vec<(String, String)>,
}

impl Default for Setting {
    fn default() -> Self {
        Setting {
            root: PathBuf::from("/"),
            nvml_library: PathBuf::from("libnvidia-ml.so.1"),
            opencl_library: PathBuf::from("libOpenCL.so.1"),
            checkpoint_program: None,
            patience: Duration::from_secs(10),
            for_nvml: Vec::new(),
        }
    }
}

impl Setting {
    pub fn from_environment() -> Setting {
        let usual = Setting::default();
        let path = |name, usual| std::env::var_os(name).map_or(usual, PathBuf::from);
        let patience_ms = std::env::var(PATIENCE).ok().and_then(|text| text.parse().ok());
        Setting {
            root: path(ROOT, usual.root),
            nvml_library: path(NVML, usual.nvml_library),
            opencl_library: path(OPENCL, usual.opencl_library),
            checkpoint_program: std::env::var_os(CHECKPOINT).map(PathBuf::from),
            patience: patience_ms.map_or(usual.patience, Duration::from_millis),
            for_nvml: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, _)| name.starts_with(FOR_NVML) && name != NVML)
                .collect(),
        }
    }

    /// The same, for a child that reads it with `from_environment`.
    pub fn variables(&self) -> Vec<(String, std::ffi::OsString)> {
        let mut variables = vec![
            (ROOT.to_owned(), self.root.clone().into()),
            (NVML.to_owned(), self.nvml_library.clone().into()),
            (OPENCL.to_owned(), self.opencl_library.clone().into()),
        ];
        let checkpoint = self.checkpoint_program.iter();
        variables.extend(checkpoint.map(|path| (CHECKPOINT.to_owned(), path.into())));
        let for_nvml = self.for_nvml.iter();
        variables.extend(for_nvml.map(|(name, value)| (name.clone(), value.into())));
        variables
    }

    /// NVIDIA's program for setting programs aside, where there is one.
    pub fn checkpoint(&self) -> Option<PathBuf> {
        let usual = || {
            let places = CHECKPOINT_PLACES.iter().map(|place| self.root.join(place));
            places.into_iter().find(|path| path.is_file())
        };
        self.checkpoint_program.clone().or_else(usual)
    }

    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Of these files below `dev`, those that are there, for a job cannot be given another; the rest are noted.
    pub fn device_files(
        &self,
        names: impl IntoIterator<Item = String>,
        title: &str,
        notes: &mut Vec<String>,
    ) -> Vec<PathBuf> {
        let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) = names
            .into_iter()
            .map(|name| self.root.join("dev").join(name))
            .partition(|path| path.exists());
        notes.extend(missing.iter().map(|path| {
            format!(
                "{title}: {} is missing, and programs that need it will fail",
                path.display()
            )
        }));
        there
    }
}
