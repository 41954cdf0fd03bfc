//! What drivers are known by: what their libraries are called, which files those are, and the files of the devices they
//! serve.
//!
//! A job finds a library under any name, so it is known by its file too. One that a job brought along may be known by
//! neither; but whoever works a device has that device's file open or mapped, and only then gets anything of it.
//! Deliberately absent: whose processes are looked at and what follows (`past`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, major, minor, statx};

use crate::kernel::{mapped_as, mapped_file};

/// Libraries by which programs reach a device without a loader that OpenCL's or Vulkan's files would name: up to their
/// version. The second is the first under the name the guard finds it by.
const LIBRARIES: [&str; 6] = [
    "libcuda.so",
    "driver-libcuda.so",
    "libamdhip64.so",
    "libhsa-runtime64.so",
    "libze_intel_gpu.so",
    "libze_loader.so",
];

/// Where hosts have drivers' libraries.
const DIRS: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/lib",
    "opt/rocm/lib",
];

const OPENCL: &str = "etc/OpenCL/vendors";
const VULKAN: [&str; 4] = [
    "usr/share/vulkan/icd.d",
    "usr/local/share/vulkan/icd.d",
    "etc/vulkan/icd.d",
    "usr/local/etc/vulkan/icd.d",
];

/// What names a driver to a loader is short.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// No program has more files open than this; one that has is not looked through to its end.
const FILES_MAX: usize = 1 << 16;

/// Of this host's libraries.
#[derive(Debug, Default)]
pub struct Drivers {
    /// Up to their version.
    names: BTreeSet<String>,
    /// As `mapped_as` has them.
    files: BTreeSet<String>,
}

impl Drivers {
    /// `more`: libraries that lie elsewhere.
    pub fn of(root: &Path, more: &[PathBuf]) -> Drivers {
        let mut drivers = Drivers {
            names: LIBRARIES.map(str::to_owned).into(),
            files: BTreeSet::new(),
        };
        let opencl = texts(&root.join(OPENCL)).map(|text| text.trim().to_owned());
        let vulkan = VULKAN.iter().flat_map(|dir| texts(&root.join(dir)));
        let mut named: Vec<PathBuf> = opencl
            .chain(vulkan.filter_map(|text| library_path(&text)))
            .map(PathBuf::from)
            .collect();
        named.retain(|library| {
            let stem = stem(library);
            drivers.names.extend(stem.clone());
            stem.is_some()
        });
        for dir in DIRS {
            let Ok(entries) = fs::read_dir(root.join(dir)) else {
                continue;
            };
            let known = entries.flatten().map(|entry| entry.path()).filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| drivers.names.iter().any(|known| name.starts_with(known.as_str())))
            });
            named.extend(known);
        }
        let absolute = named.iter().chain(more).filter(|path| path.is_absolute());
        drivers.files = absolute
            .filter_map(|path| mapped_as(&File::open(path).ok()?).ok())
            .collect();
        drivers
    }

    /// What a line of a process's mappings has of a driver.
    fn in_line(&self, line: &str) -> Option<String> {
        let name = line.rsplit('/').next().filter(|name| name.len() < line.len())?;
        let by_name = self.names.iter().any(|known| name.starts_with(known.as_str()));
        let is_known = by_name || mapped_file(line).is_some_and(|file| self.files.contains(file));
        is_known.then(|| format!("the driver {name}"))
    }
}

/// Up to its version, as loaders are told it.
fn stem(library: &Path) -> Option<String> {
    let name = library.file_name()?.to_str()?;
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    Some(format!("{stem}.so"))
}

fn texts(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| {
        let mut text = String::new();
        let file = File::open(file.path()).ok()?;
        file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    })
}

/// Of the file that names a driver to Vulkan's loader.
fn library_path(manifest: &str) -> Option<String> {
    let manifest: serde_json::Value = serde_json::from_str(manifest).ok()?;
    Some(manifest["ICD"]["library_path"].as_str()?.to_owned())
}

/// Of devices that are shared here.
#[derive(Debug, Default)]
pub struct DeviceFiles {
    /// As lists of mappings have them.
    mapped: BTreeSet<String>,
    by_number: BTreeMap<(u32, u32), PathBuf>,
}

impl DeviceFiles {
    pub fn of<'a>(files: impl Iterator<Item = &'a PathBuf>) -> DeviceFiles {
        let mut known = DeviceFiles::default();
        for path in files {
            let Ok(facts) = fs::metadata(path) else { continue };
            if facts.file_type().is_char_device() {
                let (device, number) = (facts.dev(), facts.rdev());
                let at = format!("{:02x}:{:02x} {}", major(device), minor(device), facts.ino());
                known.mapped.insert(at);
                known
                    .by_number
                    .insert((major(number), minor(number)), path.clone());
            }
        }
        known
    }

    fn in_line(&self, line: &str) -> Option<String> {
        if self.mapped.is_empty() {
            return None;
        }
        let file = mapped_file(line).filter(|file| self.mapped.contains(*file))?;
        let path = line.find('/').map_or(file, |at| &line[at..]);
        Some(format!("the device's file {path}"))
    }

    /// What a process has open of them, as it is said of it.
    pub fn open_in(&self, root: &Path, pid: i32) -> io::Result<Option<String>> {
        if self.by_number.is_empty() {
            return Ok(None);
        }
        let open = fs::read_dir(root.join(format!("proc/{pid}/fd")))?;
        for (number, file) in open.flatten().enumerate() {
            if number >= FILES_MAX {
                return Ok(Some("has more files open than can be looked at".to_owned()));
            }
            // As it is known here: a file system that does not answer holds nobody up.
            let how = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
            let Ok(facts) = statx(CWD, file.path(), how, StatxFlags::TYPE) else {
                continue;
            };
            let device = (facts.stx_rdev_major, facts.stx_rdev_minor);
            let is_device = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::CharacterDevice;
            if let Some(path) = self.by_number.get(&device).filter(|_| is_device) {
                return Ok(Some(past(&format!("the device's file {}", path.display()))));
            }
        }
        Ok(None)
    }
}

/// What is said of a process.
fn past(what: &str) -> String {
    format!("used {what} past the guard")
}

/// Both.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub drivers: &'a Drivers,
    pub devices: &'a DeviceFiles,
}

impl Known<'_> {
    /// What a line of a process's mappings says of it.
    pub fn in_line(self, line: &str) -> Option<String> {
        let what = self.drivers.in_line(line).or_else(|| self.devices.in_line(line));
        what.map(|what| past(&what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_library_is_known_by_its_name_and_by_its_file() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "etc/OpenCL/vendors/pocl.icd", "libpocl.so.2.10.0\n");
        let manifest = |library: &str| format!(r#"{{"ICD": {{"library_path": "{library}"}}}}"#);
        write(
            at,
            "usr/share/vulkan/icd.d/lvp.json",
            &manifest("../../../lib/libvulkan_lvp.so"),
        );
        write(
            at,
            "etc/vulkan/icd.d/nvidia.json",
            &manifest("libGLX_nvidia.so.0"),
        );
        write(at, "etc/vulkan/icd.d/broken.json", "{");
        for file in ["libcuda.so.560", "libpocl.so.2.10.0", "libm.so.6"] {
            write(at, &format!("usr/lib/x86_64-linux-gnu/{file}"), file);
        }
        write(at, "srv/elsewhere/libcuda.so.1", "elsewhere");
        let drivers = Drivers::of(at, &[at.join("srv/elsewhere/libcuda.so.1")]);
        for driver in [
            "libcuda.so.1",
            "driver-libcuda.so.1",
            "libcuda.so.560 (deleted)",
            "libamdhip64.so.6",
            "libhsa-runtime64.so.1.14",
            "libze_intel_gpu.so.1",
            "libze_loader.so.1",
            "libpocl.so.2.10.0",
            "libvulkan_lvp.so",
            "libGLX_nvidia.so.560",
        ] {
            let line = format!("7f00-7f10 r-xp 00000000 fd:00 1  /tmp/{driver}");
            assert_eq!(drivers.in_line(&line), Some(format!("the driver {driver}")));
        }
        for other in ["libcudart.so.12", "libvulkan.so.1", "libOpenCL.so.1", "mine.so"] {
            let line = format!("7f00-7f10 r-xp 00000000 fd:00 1  /tmp/{other}");
            assert_eq!(drivers.in_line(&line), None, "{other}");
        }
        for (file, is_driver) in [
            ("usr/lib/x86_64-linux-gnu/libcuda.so.560", true),
            ("usr/lib/x86_64-linux-gnu/libpocl.so.2.10.0", true),
            ("srv/elsewhere/libcuda.so.1", true),
            ("usr/lib/x86_64-linux-gnu/libm.so.6", false),
        ] {
            let known = mapped_as(&File::open(at.join(file)).unwrap()).unwrap();
            let line = format!("7f00-7f10 r-xp 00000000 {known}   /tmp/mine.so");
            assert_eq!(drivers.in_line(&line).is_some(), is_driver, "{file}");
        }
    }
}
