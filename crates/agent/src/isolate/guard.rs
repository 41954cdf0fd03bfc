//! What stands between a job and its slices: the guard library and the pages of its devices, shown to the job
//! under short paths, and the variables that make loaders take them up.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::front::{self, Front};
use super::root::{Bound, TENURE_DIR};
use crate::share::GuardedSlice;

/// The library's file, beside the agent's own.
pub const LIBRARY: &str = "libtenure_guard.so";

/// The library beside this program, or why there is none.
pub fn beside_this_program() -> Result<PathBuf, String> {
    let beside = std::env::current_exe()
        .map_err(|error| error.to_string())?
        .with_file_name(LIBRARY);
    if !beside.exists() {
        return Err(format!("{LIBRARY} is not beside the agent"));
    }
    check(&beside).map_err(|why| format!("{}: {why}", beside.display()))?;
    Ok(beside)
}

/// Whether a file is the guard, and of a version that knows our pages. A loader takes a library that is no layer
/// for none at all, and would give the job the whole device. Asked by a process of its own, for loading is running.
pub fn check(library: &Path) -> Result<(), String> {
    Mapping::of(Path::new(crate::PROGRAM), library).map(drop)
}

/// The library's file as the kernel's list of a process's mappings names it: device and inode. A bound file has the same
/// in every job, and no other file has it, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    device: String,
    inode: String,
}

impl Mapping {
    /// What a process that has loaded the library sees; `program` is the agent's.
    pub fn of(program: &Path, library: &Path) -> Result<Mapping, String> {
        let output = std::process::Command::new(program)
            .arg("probe-guard")
            .arg(library)
            .env_clear()
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match Mapping::read(&said).filter(|_| output.status.success()) {
            Some(mapping) => Ok(mapping),
            None => Err(said),
        }
    }

    pub fn read(text: &str) -> Option<Mapping> {
        let (device, inode) = text.split_once(' ')?;
        Some(Mapping {
            device: device.to_owned(),
            inode: inode.to_owned(),
        })
    }

    /// Whether a line of a process's mappings has the library's code.
    pub fn is_in(&self, line: &str) -> bool {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let code = fields.next().is_some_and(|rights| rights.contains('x'));
        let (device, inode) = (fields.nth(1), fields.next());
        code && device == Some(&*self.device) && inode == Some(&*self.inode)
    }
}

/// What of a file is loaded here, as `Mapping` reads it.
fn mapped(library: &Path) -> Result<String, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    let path = std::fs::canonicalize(library).map_err(|error| error.to_string())?;
    let line = maps.lines().find(|line| line.ends_with(&*path.to_string_lossy()));
    let mut fields = line.into_iter().flat_map(str::split_ascii_whitespace).skip(3);
    match (fields.next(), fields.next()) {
        (Some(device), Some(inode)) => Ok(format!("{device} {inode}")),
        _ => Err("it is loaded and not among the mappings".to_owned()),
    }
}

/// What `probe-guard` does: says what is wrong with the library, or how a process that has it is known.
pub fn probe(library: &Path) -> i32 {
    let path = library;
    let wrong = || {
        // SAFETY: the library's start-up code runs, in a process that does nothing else.
        let library = unsafe { libloading::Library::new(library) }.map_err(|error| error.to_string())?;
        let fronts = ["cuInit", "nvmlInit_v2", "vkNegotiateLoaderLayerInterfaceVersion"];
        for symbol in ["clGetLayerInfo", "clInitLayer"].into_iter().chain(fronts) {
            // SAFETY: only looked up, never called.
            unsafe { library.get::<*const ()>(symbol) }.map_err(|_| format!("it has no {symbol}"))?;
        }
        // SAFETY: the guard's function of this name has this type.
        let version = unsafe { library.get::<extern "C" fn() -> u32>("tenure_guard_page_version") }
            .map_err(|_| "it does not say which pages it knows".to_owned())?();
        if version == tenure_limits::VERSION {
            mapped(path)
        } else {
            Err(format!(
                "it knows pages of version {version}, the agent {}",
                tenure_limits::VERSION
            ))
        }
    };
    match wrong() {
        Ok(known) => {
            println!("{known}");
            0
        }
        Err(why) => {
            println!("{why}");
            1
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub library: PathBuf,
    pub slices: Vec<GuardedSlice>,
    /// Libraries the guard stands for in the job's tree.
    #[serde(default)]
    pub fronts: Vec<Front>,
    /// The directory that names the guard to Vulkan loaders.
    #[serde(default)]
    pub vulkan: Option<PathBuf>,
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
        let fronts = self.fronts.iter().flat_map(|front| front.bound(&self.library));
        let vulkan = self.vulkan.iter().map(|dir| Bound {
            from: dir.clone(),
            to: front::VULKAN_DIR.into(),
            writable: false,
        });
        let library = std::iter::once(library);
        library.chain(pages).chain(fronts).chain(vulkan).collect()
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
        let mut variables: Vec<(String, String)> = [
            (
                "OPENCL_LAYERS",
                shown(&self.library, Path::new(TENURE_DIR).join(LIBRARY)),
            ),
            (
                "TENURE_GUARD_PAGE",
                list(&|number, slice| shown(&slice.page, page(number))),
            ),
            ("TENURE_GUARD_SLICE", list(&|_, slice| slice.slice.to_string())),
            ("TENURE_GUARD_DEVICE", list(&|_, slice| selector(slice))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if own_tree {
            variables.extend(self.fronts.iter().map(Front::variable));
            variables.extend(self.vulkan.iter().flat_map(|_| front::vulkan_variables()));
        }
        variables
    }
}

/// Which of the driver's devices: by its UUID where it has one that every front knows, else by OpenCL's name.
fn selector(slice: &GuardedSlice) -> String {
    match slice
        .uuid
        .strip_prefix("GPU-")
        .or(slice.uuid.strip_prefix("MIG-"))
    {
        Some(uuid) => format!("uuid:{uuid}"),
        None => format!("{}:{}", slice.device.platform, slice.device.index),
    }
}

fn page(number: usize) -> PathBuf {
    Path::new(TENURE_DIR).join(format!("page-{number}"))
}
