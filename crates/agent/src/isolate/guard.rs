//! What stands between a job and its slices: the guard library and the pages of its devices, shown to the job
//! under short paths, and the variables that make an OpenCL loader take them up.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::root::{Bound, TENURE_DIR};
use crate::share::GuardedSlice;

/// The library's file, beside the agent's own.
pub const LIBRARY: &str = "libtenure_guard.so";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub library: PathBuf,
    pub slices: Vec<GuardedSlice>,
}

impl Guard {
    /// What must be in the job's tree.
    pub fn bound(&self) -> Vec<Bound> {
        let library = Bound {
            from: self.library.clone(),
            to: Path::new(TENURE_DIR).join(LIBRARY),
            writable: false,
        };
        let pages = self.slices.iter().enumerate().map(|(number, slice)| Bound {
            from: slice.page.clone(),
            to: page(number),
            writable: true,
        });
        std::iter::once(library).chain(pages).collect()
    }

    /// The variables, for a job with a tree of its own or with the host's.
    pub fn variables(&self, own_tree: bool) -> Vec<(String, String)> {
        let list = |of: &dyn Fn(usize, &GuardedSlice) -> String| {
            let texts: Vec<String> = self
                .slices
                .iter()
                .enumerate()
                .map(|(number, slice)| of(number, slice))
                .collect();
            texts.join(";")
        };
        let shown = |path: &Path, inside: PathBuf| {
            if own_tree { inside } else { path.to_owned() }
                .display()
                .to_string()
        };
        [
            (
                "OPENCL_LAYERS",
                shown(&self.library, Path::new(TENURE_DIR).join(LIBRARY)),
            ),
            (
                "TENURE_GUARD_PAGE",
                list(&|number, slice| shown(&slice.page, page(number))),
            ),
            ("TENURE_GUARD_SLICE", list(&|_, slice| slice.slice.to_string())),
            (
                "TENURE_GUARD_DEVICE",
                list(&|_, slice| format!("{}:{}", slice.device.platform, slice.device.index)),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

fn page(number: usize) -> PathBuf {
    Path::new(TENURE_DIR).join(format!("page-{number}"))
}
