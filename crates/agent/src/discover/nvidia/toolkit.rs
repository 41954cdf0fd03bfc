//! NVIDIA's container toolkit, where the host has one: which version, asked of itself. The process this runs in has a
//! deadline.

use std::process::{Command, Stdio};

use super::super::setting::Setting;
use super::super::{floor, printable};

/// Where packages and NVIDIA's operator put it.
const PLACES: [&str; 2] = ["usr/bin/nvidia-ctk", "usr/local/nvidia/toolkit/nvidia-ctk"];

/// What is wrong with the toolkits of this host.
pub fn wrong(setting: &Setting) -> Vec<String> {
    let here = PLACES.map(|place| setting.root.join(place));
    let judged = here.iter().filter(|path| path.exists()).filter_map(|path| {
        let asked = Command::new(path)
            .arg("--version")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let said = asked.map(|output| printable(&output.stdout)).unwrap_or_default();
        // "NVIDIA Container Toolkit CLI version 1.17.8", then a commit.
        let version = said
            .split("version ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        let why = floor::wrong_toolkit(version.unwrap_or_default())?;
        Some(format!("the container toolkit at {}: {why}", path.display()))
    });
    judged.collect()
}
