//! Programs for the tests: this same binary, started again to run one named part.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PART: &str = "TENURE_BROKER_TEST_PART";

/// A part running in a process of its own; ended when dropped.
pub struct Part {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts `part`; `command` comes from a bench and names this test's binary.
    pub fn start(mut command: Command, part: &str, settings: &[(&str, String)]) -> Part {
        let mut child = command
            .args([
                "--exact",
                "part::runs_its_part",
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
        Part { child, input, output }
    }

    /// The next line that begins with `word`, without it; none when the part ends first.
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

    /// The next line, whatever it says.
    pub fn any_line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(1..) => Some(line.trim().to_owned()),
            _ => None,
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

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This binary, to be started as a part.
pub fn own() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// Says a word and its values to the test that started this part.
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

#[test]
fn runs_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    match part.as_str() {
        "semantics" => super::semantics::check_all(),
        "spin" => super::death::spin(),
        "work" => super::death::work(),
        "fork" => super::fork::fork_and_go_on(),
        "allocate" => super::fork::allocate(),
        "every way" => super::transfer::every_way(),
        "crowd" => super::transfer::crowd(),
        "until lost" => super::transfer::until_lost(),
        "cost" => super::cost::measure(),
        "hand over" => super::scrub::hand_over(),
        "live once" => super::scrub::live_once(),
        "let queues go" => super::scrub::let_queues_go(),
        other => panic!("no part {other}"),
    }
}
