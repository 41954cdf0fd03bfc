//! A chore: a program of ours that does one thing with a device, as a process of its own, and says in a line what it did.
//!
//! It has none of this process's environment. One that takes too long is ended, and one that is told to stop too.
//! Deliberately absent: what is done (`tenure-broker`), and when (`scrub`, `check`).

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Both say a line at most, which a pipe holds.
const LINE_BYTES_MAX: u64 = 4096;
const LOOK: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug)]
pub enum Unfinished {
    /// It was told to.
    Stopped,
    /// For people.
    Failed(String),
}

/// A command with what every chore has; drivers keep what they compile in `cache`.
pub fn command(
    program: &Path,
    cache: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("POCL_CACHE_DIR", cache)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end, and gives what it said.
pub fn run(mut command: Command, patience: Duration, stop: &AtomicBool) -> Result<String, Unfinished> {
    let failed = |error: io::Error| Unfinished::Failed(error.to_string());
    let mut child = command.spawn().map_err(failed)?;
    let deadline = Instant::now() + patience;
    let status = loop {
        let status = child.try_wait().map_err(failed)?;
        match status {
            Some(status) => break status,
            None if stop.load(Ordering::Acquire) => {
                let _ = child.kill();
                // Waited for: what it holds of the device is free only then.
                let _ = child.wait();
                return Err(Unfinished::Stopped);
            }
            None if Instant::now() >= deadline => {
                give_up(child);
                return Err(Unfinished::Failed("it did not end in time".to_owned()));
            }
            None => std::thread::sleep(LOOK),
        }
    };
    if status.success() {
        return Ok(heard(child.stdout.take()).trim().to_owned());
    }
    let said = heard(child.stderr.take());
    let last = said.lines().last().unwrap_or("it said nothing");
    let why = last.trim_start_matches("tenure-broker: ").to_owned();
    Err(Unfinished::Failed(why))
}

/// A process in the driver may not die at once: a thread waits for that, and nobody for the thread.
pub(crate) fn give_up(mut child: Child) {
    let _ = child.kill();
    std::thread::spawn(move || child.wait());
}

fn heard(pipe: Option<impl Read>) -> String {
    let mut said = String::new();
    let _ = pipe.map(|pipe| pipe.take(LINE_BYTES_MAX).read_to_string(&mut said));
    said
}

/// As a report may carry it: one line of plain letters.
pub fn one_line(why: &str) -> String {
    let plain = |letter: &char| tenure_domain::name::check_text(&letter.to_string(), 4, "").is_ok();
    why.chars().filter(plain).take(200).collect()
}
