//! What a device is, measured: on the double whose faults are known, and on PoCL.

use std::process::Command;

use super::bench::{MIB, turn};
use super::scrub::{LASTING_BYTES, lasting};

/// What the program says.
struct Said(String);

impl Said {
    fn number(&self, field: &str) -> u64 {
        let rest = self.0.split(&format!(r#""{field}":"#)).nth(1).expect("the field");
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).expect("a number")
    }
}

fn said(mut command: Command, platform: &str, bytes: u64) -> Result<Said, String> {
    let bytes = bytes.to_string();
    let device = ["check", "--platform", platform, "--device", "0"];
    command.args(device).args(["--bytes", &bytes]);
    let output = command.args(["--processor-bytes", "16777216"]).output().unwrap();
    match output.status.success() {
        true => Ok(Said(String::from_utf8(output.stdout).unwrap())),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn checked(dir: &tempfile::TempDir, fault: &str, bytes: u64) -> Result<Said, String> {
    let mut command = lasting(dir, env!("CARGO_BIN_EXE_tenure-broker"));
    command.env("TENURE_LASTING_FAULT", fault);
    said(command, "Lasting", bytes)
}

#[test]
fn memory_counts_as_far_as_it_holds_what_was_written() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let whole = checked(&dir, "", LASTING_BYTES).unwrap();
    assert_eq!(whole.number("bytes"), LASTING_BYTES, "{}", whole.0);
    assert_eq!(whole.number("tried_bytes"), LASTING_BYTES);
    assert!(whole.number("speed") > 0, "{}", whole.0);
    // One that promises more than it has gives what it has.
    let small = checked(&dir, "small", LASTING_BYTES).unwrap();
    assert_eq!(small.number("bytes"), 192 << 10, "{}", small.0);
    let claimed = checked(&dir, "", 64 * MIB).unwrap();
    assert!(claimed.number("bytes") <= MIB, "{}", claimed.0);
    let stuck = checked(&dir, "stuck", LASTING_BYTES).err().expect("found out");
    assert!(stuck.contains("was not read back"), "{stuck}");
}

#[test]
fn who_does_not_do_the_work_is_found_out() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let idle = checked(&dir, "idle", LASTING_BYTES).err().expect("found out");
    assert!(idle.contains("was to be computed"), "{idle}");
    let command = lasting(&dir, env!("CARGO_BIN_EXE_tenure-broker"));
    let absent = said(command, "Absent", 1).err().expect("no device, no check");
    assert!(absent.contains("there is no device"), "{absent}");
}

#[test]
fn a_processor_has_what_the_kernel_says() {
    let _turn = turn();
    let command = || Command::new(env!("CARGO_BIN_EXE_tenure-broker"));
    let platform = "Portable Computing Language";
    let found = said(command(), platform, 1 << 50).unwrap();
    assert_eq!(found.number("tried_bytes"), 16 << 20, "{}", found.0);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().next().unwrap().split_whitespace().nth(1).unwrap();
    let machine: u64 = line.parse::<u64>().unwrap() << 10;
    let bytes = found.number("bytes");
    assert!(bytes > machine / 4 && bytes <= machine, "{bytes} of {machine}");
    let again = said(command(), platform, 1 << 50).unwrap();
    let [one, other] = [&found, &again].map(|found| found.number("speed"));
    assert!(
        one < other * 4 && other < one * 4,
        "{one} and {other}: the same device"
    );
}
