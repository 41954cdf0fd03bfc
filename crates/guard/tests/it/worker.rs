//! Programs for the tests: this same binary, started again to run one named part.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PART: &str = "TENURE_GUARD_TEST_PART";

/// A part running in a process of its own; ended when dropped.
pub struct Worker {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts `part`; `command` comes from a bench and names this test's binary.
    pub fn start(mut command: Command, part: &str, settings: &[(&str, String)]) -> Worker {
        let mut child = command
            .args([
                "--exact",
                "worker::runs_its_part",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(PART, part)
            .envs(settings.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Worker { child, input, output }
    }

    /// The next line that begins with `word`, without it; none when the worker ends first.
    pub fn line(&mut self, word: &str) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // The harness prints its own words before the first line, on the same line.
            if let Some(at) = line.find(&format!("@{word}")) {
                return Some(line[at + word.len() + 1..].trim().to_owned());
            }
        }
    }

    pub fn tell(&mut self, word: &str) {
        writeln!(self.input.as_mut().unwrap(), "{word}").unwrap();
    }

    /// Waits for the end: exit code and stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        use std::io::Read;
        drop(self.input.take());
        let mut rest = String::new();
        let _ = self.output.read_to_string(&mut rest);
        let mut said = String::new();
        let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
        (self.child.wait().unwrap().code(), said)
    }

    pub fn signal(&self, signal: &str) {
        let done = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This binary, to be started as a worker.
pub fn own() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// Says a word and its values to the test that started this worker.
pub fn say(word: &str, values: impl std::fmt::Display) {
    println!("@{word} {values}");
}

pub fn heard(word: &str) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(line.trim(), word);
}

pub fn setting(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

pub fn eventually(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn runs_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    match part.as_str() {
        "calibrate" => super::share::calibrate(),
        "share" => super::share::work(),
        "allocate" => super::memory::allocate(),
        "paths" => super::memory::paths(),
        "zero" => super::memory::zero(),
        "random" => super::memory::random(),
        "fork" => super::memory::fork_and_allocate(),
        "info" => super::info::look(),
        "several" => super::info::look_at_several(),
        "cost" => super::cost::measure(),
        "deny" => super::deny::try_everything(),
        "user-event" => super::deny::wait_on_a_user_event(),
        "queue-before-its-events" => super::queue::before_its_events(),
        "queue-counted" => super::queue::counted(),
        "cuda-paths" => super::cuda::memory::paths(),
        "cuda-allocate" => super::cuda::limit::allocate(),
        "nvml" => super::cuda::nvml::look(),
        "cuda-through" => super::cuda::pass::through(),
        "cuda-first-floating" => super::cuda::pass::first_floating(),
        "cuda-results" => super::cuda::pass::results(),
        "cuda-audit" => super::cuda::audit::work(),
        "cuda-address" => super::cuda::address::ask(),
        "cuda-by-path" => super::cuda::address::by_path(),
        "cuda-no-device" => super::cuda::missing::none(),
        "cuda-by-path-refused" => super::cuda::missing::by_path(),
        "cuda-export" => super::cuda::ipc::export(),
        "cuda-open" => super::cuda::ipc::open(),
        "cuda-share" => super::cuda::share::work(),
        "vulkan-paths" => super::vulkan::memory::paths(),
        "vulkan-allocate" => super::vulkan::memory::allocate(),
        "vulkan-audit" => super::vulkan::audit::work(),
        "vulkan-look" => super::vulkan::memory::look(),
        "vulkan-share" => super::vulkan::share::work(),
        "misbehave" => super::contain::misbehave(),
        "audit" => super::audit::work(),
        other => panic!("no part {other}"),
    }
}
