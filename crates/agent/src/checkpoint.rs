//! What a program has on NVIDIA's devices, moved to the host's memory by its driver and back again, with NVIDIA's
//! `cuda-checkpoint`: the way to pause a job that has no worker.
//!
//! The driver knows for each process how far it is (running, locked, checkpointed), so each step is asked for only where
//! it is due, and an agent that ended in between goes on. Deliberately absent: the job's own memory and files, which
//! stay where they are; other vendors' drivers, which have nothing like it. Called by `node/pause.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::discover::setting::Setting;

/// How long a program's work on the device may take to come to an end, once nothing new is taken.
const LOCK_MS: u64 = 10_000;
/// How long one step may take: as long as the largest device's memory takes over a slow bus.
const STEP: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(2);

/// How far a process is, in the driver's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Locked,
    Checkpointed,
}

pub struct Checkpoint {
    program: PathBuf,
    /// Where the devices' files are.
    dev: PathBuf,
}

impl Checkpoint {
    pub fn of(setting: &Setting) -> Option<Checkpoint> {
        Some(Checkpoint {
            program: setting.checkpoint()?,
            dev: setting.root.join("dev"),
        })
    }

    /// Those of the processes that have a device open.
    pub fn users(&self, processes: &[i32]) -> Result<Vec<i32>, String> {
        let mut users = Vec::new();
        for &pid in processes {
            match uses_device(&self.dev, pid) {
                Ok(true) => users.push(pid),
                Ok(false) => {}
                // It has ended meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("what process {pid} has open cannot be seen: {error}")),
            }
        }
        Ok(users)
    }

    /// Whether anything of these was set aside.
    pub fn is_aside(&self, users: &[i32]) -> Result<bool, String> {
        let stages = users.iter().map(|&pid| self.stage(pid));
        Ok(stages
            .collect::<Result<Vec<_>, _>>()?
            .contains(&Stage::Checkpointed))
    }

    /// Takes everything of these processes off the devices, or leaves all as it was.
    pub fn set_aside(&self, users: &[i32]) -> Result<(), String> {
        for &pid in users {
            if let Err(why) = self.step_aside(pid) {
                // A child that became another program, or ended, has nothing on a device any more.
                if self.users(&[pid])?.is_empty() {
                    continue;
                }
                // Those before it as well; whatever cannot go back says so where it is next asked.
                let _ = self.take_up(users);
                return Err(why);
            }
        }
        Ok(())
    }

    /// Puts everything back.
    pub fn take_up(&self, users: &[i32]) -> Result<(), String> {
        let mut first = Ok(());
        for &pid in users {
            let taken = self.step_up(pid);
            first = first.and(taken);
        }
        first
    }

    fn step_aside(&self, pid: i32) -> Result<(), String> {
        if self.stage(pid)? == Stage::Running {
            let patience = LOCK_MS.to_string();
            self.run(pid, &["--action", "lock", "--timeout", &patience])?;
        }
        if self.stage(pid)? == Stage::Locked {
            self.run(pid, &["--action", "checkpoint"])?;
        }
        match self.stage(pid)? {
            Stage::Checkpointed => Ok(()),
            stage => Err(format!("process {pid} is {stage:?} still, the driver says").to_lowercase()),
        }
    }

    fn step_up(&self, pid: i32) -> Result<(), String> {
        if self.stage(pid)? == Stage::Checkpointed {
            self.run(pid, &["--action", "restore"])?;
        }
        if self.stage(pid)? == Stage::Locked {
            self.run(pid, &["--action", "unlock"])?;
        }
        Ok(())
    }

    fn stage(&self, pid: i32) -> Result<Stage, String> {
        let said = self.run(pid, &["--get-state"])?;
        match said.trim() {
            "running" => Ok(Stage::Running),
            "locked" => Ok(Stage::Locked),
            "checkpointed" => Ok(Stage::Checkpointed),
            other => Err(format!(
                "the driver says of process {pid}: {}",
                other.chars().take(200).collect::<String>()
            )),
        }
    }

    fn run(&self, pid: i32, words: &[&str]) -> Result<String, String> {
        let title = || format!("{} {} of process {pid}", self.program.display(), words.join(" "));
        let output =
            output(&self.program, words, pid).map_err(|error| format!("{} failed: {error}", title()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let why = text(&output.stderr) + &text(&output.stdout);
        Err(format!("{} failed: {}", title(), why.replace('\n', " ")))
    }
}

/// What the program says; it is ended where it takes longer than a step may.
fn output(program: &Path, words: &[&str], pid: i32) -> std::io::Result<Output> {
    let mut child = Command::new(program)
        .args(words)
        .args(["--pid", &pid.to_string()])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + STEP;
    // What it says is a line: it never waits for a reader.
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::other("it did not end in time"));
        }
        std::thread::sleep(LOOK);
    }
    child.wait_with_output()
}

fn uses_device(dev: &Path, pid: i32) -> std::io::Result<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = fs::read_link(entry?.path()).unwrap_or_default();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.starts_with(dev) && name.starts_with("nvidia") {
            return Ok(true);
        }
    }
    Ok(false)
}
