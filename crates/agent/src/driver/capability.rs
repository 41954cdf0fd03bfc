//! The device files by which NVIDIA's driver grants the use of a part: one for its GPU instance, one for its compute
//! instance, each named by a file below `/proc/driver/nvidia/capabilities`.
//!
//! Where nobody made the device file yet (udev does not know them), it is made here.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::discover::setting::Setting;

const DRIVER: &str = "nvidia-caps";

/// The device file for the capability at this path below `/proc`.
pub fn file(setting: &Setting, capability: &str) -> Result<PathBuf, String> {
    let access = setting.root.join("proc").join(capability).join("access");
    let text = fs::read_to_string(&access).map_err(|error| format!("{}: {error}", access.display()))?;
    let minor: u32 = text
        .lines()
        .find_map(|line| line.strip_prefix("DeviceFileMinor:")?.trim().parse().ok())
        .ok_or_else(|| format!("{} names no device file", access.display()))?;
    let dir = setting.root.join("dev").join(DRIVER);
    let path = dir.join(format!("nvidia-cap{minor}"));
    if path.exists() {
        return Ok(path);
    }
    let major = major(setting)?;
    let made = fs::create_dir_all(&dir).and_then(|()| {
        let mode = Mode::RUSR | Mode::RGRP | Mode::ROTH;
        match mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    made.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn major(setting: &Setting) -> Result<u32, String> {
    let path = setting.root.join("proc/devices");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let numbered = text.lines().find_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        (name.trim() == DRIVER).then(|| number.parse().ok())?
    });
    numbered.ok_or_else(|| format!("{} does not know {DRIVER}", path.display()))
}
