//! What the machine has. Drivers are asked by a child process with a deadline: one that hangs holds up nobody.

pub mod host;
pub mod opencl;

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::workload::spec::Isolation;

const DRIVER_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A device, and how programs on this node find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub facts: GpuFacts,
    /// As the OpenCL loader knows it; none where no OpenCL driver serves it.
    pub opencl: Option<OpenClName>,
    /// Device files a program needs to use it; none for a processor.
    pub files: Vec<PathBuf>,
}

/// Which device of which OpenCL platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClName {
    pub platform: String,
    pub index: usize,
}

/// What a machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub devices: Vec<Device>,
    /// One line for each driver that gave nothing, and why.
    pub notes: Vec<String>,
}

impl Found {
    pub fn device(&self, uuid: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.facts.uuid == uuid)
    }

    /// Fail closed: without the guard library no device gives the level that rests on it.
    pub fn without_guard(&mut self, why: &str) {
        for device in &mut self.devices {
            device.facts.isolation.remove(&Isolation::Guarded);
        }
        self.notes.push(format!("guarded: none; {why}"));
    }

    /// What the server is told.
    pub fn inventory(&self) -> Inventory {
        Inventory {
            cpu_milli: self.cpu_milli,
            memory_mib: self.memory_mib,
            gpus: self.devices.iter().map(|device| device.facts.clone()).collect(),
            images: Vec::new(),
        }
    }
}

/// Everything that is here. `host_id` tells this machine's devices from those of others.
pub fn all(host_id: &str) -> Found {
    let mut notes = Vec::new();
    let devices = opencl(host_id).unwrap_or_else(|error| {
        notes.push(format!("OpenCL: none ({error})"));
        Vec::new()
    });
    Found {
        cpu_milli: host::cpu_milli(),
        memory_mib: host::memory_mib(),
        devices,
        notes,
    }
}

fn opencl(host_id: &str) -> io::Result<Vec<Device>> {
    let mut child = Command::new(crate::PROGRAM)
        .args(["discover-opencl", host_id])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let answer = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        answer
            .map(|answer| answer.take(ANSWER_BYTES_MAX).read_to_end(&mut text))
            .transpose()
            .map(|_| text)
    });
    let deadline = Instant::now() + DRIVER_PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            // A process in the driver may not die at once; it is left behind rather than waited for.
            child.kill()?;
            return Err(io::Error::other("the driver did not answer in time"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = reading
        .join()
        .map_err(|_| io::Error::other("reading the answer failed"))??;
    if !status.success() {
        let why = String::from_utf8_lossy(&text).trim().to_owned();
        return Err(io::Error::other(if why.is_empty() {
            format!("discovery ended with {status}")
        } else {
            why
        }));
    }
    Ok(serde_json::from_slice(&text)?)
}
