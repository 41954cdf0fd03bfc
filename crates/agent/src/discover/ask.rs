//! Asking a driver from outside: a child process loads it, and is given up when it takes too long.

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::setting::Setting;
use super::{Device, drm, nvidia, opencl};

const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The ways devices are found. What a way before finds, a later one does not replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Nvidia,
    /// Devices of the kernel's graphics drivers: AMD and Intel.
    Drm,
    OpenCl,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Nvidia, Way::Drm, Way::OpenCl];

    fn word(self) -> &'static str {
        match self {
            Way::Nvidia => "nvidia",
            Way::Drm => "drm",
            Way::OpenCl => "opencl",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Way::Nvidia => "NVIDIA",
            Way::Drm => "AMD and Intel",
            Way::OpenCl => "OpenCL",
        }
    }
}

/// What one way found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    pub devices: Vec<Device>,
    pub notes: Vec<String>,
}

/// The child's side.
pub fn answer(way: &str, setting: &Setting, host_id: &str) -> Result<String, String> {
    let way = Way::ALL.into_iter().find(|known| known.word() == way);
    let answer = match way {
        Some(Way::Nvidia) => nvidia::devices(setting)?,
        Some(Way::Drm) => drm::devices(setting, host_id),
        Some(Way::OpenCl) => opencl::devices(setting, host_id)?,
        None => return Err("discover what? nvidia, drm, opencl or all".to_owned()),
    };
    serde_json::to_string(&answer).map_err(|error| error.to_string())
}

/// The agent's side.
pub fn ask(way: Way, setting: &Setting, host_id: &str) -> io::Result<Answer> {
    Ok(serde_json::from_slice(&child(
        &["discover", way.word(), host_id],
        setting,
    )?)?)
}

/// A directory of the child's own, for as long as it is asked: drivers that keep what they compiled serve nobody whose home
/// cannot be written, and say nothing of it.
struct Home(Option<PathBuf>);

impl Home {
    fn new() -> Home {
        let mut random = [0; 8];
        let made = getrandom::fill(&mut random).ok().and_then(|()| {
            let name = format!("tenure-home-{:016x}", u64::from_ne_bytes(random));
            let dir = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o700).create(&dir).ok().map(|()| dir)
        });
        Home(made)
    }

    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new("/nonexistent"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            // What a child still writes that was given up is the host's to sweep.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// What a child of this program says that does something with a driver; its error is what it said instead.
pub(crate) fn child(arguments: &[&str], setting: &Setting) -> io::Result<Vec<u8>> {
    let home = Home::new();
    let mut child = Command::new(crate::PROGRAM)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .envs(setting.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        said.map(|said| said.take(ANSWER_BYTES_MAX).read_to_end(&mut text))
            .transpose()
            .map(|_| text)
    });
    let deadline = Instant::now() + setting.patience;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            crate::chore::give_up(child);
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the driver did not answer in time",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = reading
        .join()
        .map_err(|_| io::Error::other("reading the answer failed"))??;
    if !status.success() {
        let why = String::from_utf8_lossy(&text).trim().to_owned();
        return Err(io::Error::other(if why.is_empty() {
            format!("it ended with {status}")
        } else {
            why
        }));
    }
    Ok(text)
}
