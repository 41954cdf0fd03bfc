//! Other processes for the tests: this same binary, started again to run one named part.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tenure_limits::SliceSpec;

const PART: &str = "TENURE_LIMITS_TEST_PART";

/// One test at a time, where time is measured.
pub fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Starts `part` in a process of its own on the page and slice given.
pub fn start(part: &str, page: &Path, slice: u64, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "worker::runs_its_part",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(PART, part)
        .env("PAGE", page)
        .env("SLICE", slice.to_string())
        .env("SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn signal(child: &Child, signal: i32) {
    // SAFETY: a signal to a child of ours that was not waited for.
    assert_eq!(unsafe { libc_kill(child.id() as i32, signal) }, 0);
}

unsafe extern "C" {
    #[link_name = "kill"]
    fn libc_kill(pid: i32, signal: i32) -> i32;
}

pub const SIGKILL: i32 = 9;
pub const SIGCONT: i32 = 18;
pub const SIGSTOP: i32 = 19;

pub fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until `done`, or fails after `patience`.
pub fn eventually(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn spec(id: u64, limit_bytes: u64, weight_per_mille: u32) -> SliceSpec {
    SliceSpec {
        id,
        limit_bytes,
        weight_per_mille,
        cap_per_mille: None,
        kernel_limit_ns: None,
        process_limit_ns: None,
    }
}

/// How often a test repeats; the long run raises it.
pub fn count(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary)
}

/// A small random generator, so that a seed replays.
pub struct Dice(AtomicU64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub fn below(&self, limit: u64) -> u64 {
        let mut x = self.0.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Relaxed);
        (x >> 16) % limit
    }
}

#[test]
fn runs_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let page = std::path::PathBuf::from(std::env::var_os("PAGE").unwrap());
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let (slice, seed) = (number("SLICE"), number("SEED"));
    match part.as_str() {
        "allocate" => super::kill::allocate(&page, slice, seed),
        "hold-ledger" => super::kill::charge_without_end(&page, slice),
        "fork" => super::kill::fork_and_stay(&page, slice),
        "work" => super::lease::work(&page, slice, seed),
        other => panic!("no part {other}"),
    }
}
