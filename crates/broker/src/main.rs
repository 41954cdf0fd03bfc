//! `tenure-broker`: serves one slice's connections from an inherited or a named socket; or, as `tenure-broker scrub`,
//! overwrites a device, or as `tenure-broker check` measures it, and says in one line of JSON what it did. See the library.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tenure_broker::check::{self, Checked};
use tenure_broker::scrub::{self, Scrubbed, Wanted};
use tenure_broker::{Settings, run};
use tenure_wire::Listener;

const USAGE: &str = "usage: tenure-broker (--listen-fd N | --listen PATH) [--control-fd N | --control PATH] [--bulk-mib N] [--spill FILE]
       tenure-broker scrub --platform NAME --device N --bytes N [--least N] [--processor-bytes N]
       tenure-broker check --platform NAME --device N --bytes N [--processor-bytes N]";

fn inherited(value: &str) -> Result<Listener, String> {
    let fd: i32 = value.parse().map_err(|_| USAGE)?;
    if fd < 3 {
        return Err(USAGE.into());
    }
    // SAFETY: inherited for this very purpose, and named once.
    Ok(Listener::inherited(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn bound(value: &str) -> Result<Listener, String> {
    Listener::bind(Path::new(value)).map_err(|error| format!("{value}: {error}"))
}

fn settings() -> Result<Settings, String> {
    let mut arguments = std::env::args().skip(1);
    let (mut listener, mut control, mut spill) = (None, None, None);
    let mut bulk_mib: u64 = 4096;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match name.as_str() {
            "--listen-fd" => listener = Some(inherited(&value)?),
            "--listen" => listener = Some(bound(&value)?),
            "--control-fd" => control = Some(inherited(&value)?),
            "--control" => control = Some(bound(&value)?),
            "--bulk-mib" => bulk_mib = value.parse().map_err(|_| USAGE)?,
            "--spill" => spill = Some(PathBuf::from(value)),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(Settings {
        listener: listener.ok_or(USAGE)?,
        control,
        bulk_bytes: bulk_mib.saturating_mul(1 << 20),
        spill,
    })
}

/// Scrubs, and prints what was scrubbed.
fn scrub_one(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut wanted = Wanted {
        platform: String::new(),
        index: 0,
        bytes: 0,
        least: 0,
        processor_bytes: u64::MAX,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| USAGE.to_owned());
        match name.as_str() {
            "--platform" => wanted.platform = value,
            "--device" => wanted.index = number()? as usize,
            "--bytes" => wanted.bytes = number()?,
            "--least" => wanted.least = number()?,
            "--processor-bytes" => wanted.processor_bytes = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    let Scrubbed {
        bytes,
        asked,
        local_bytes,
        compute_units,
    } = scrub::scrub(&wanted)?;
    println!(
        r#"{{"bytes":{bytes},"asked":{asked},"local_bytes":{local_bytes},"compute_units":{compute_units}}}"#
    );
    Ok(())
}

/// Checks, and prints what was found.
fn check_one(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut wanted = check::Wanted {
        platform: String::new(),
        index: 0,
        bytes: 0,
        processor_bytes: u64::MAX,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| USAGE.to_owned());
        match name.as_str() {
            "--platform" => wanted.platform = value,
            "--device" => wanted.index = number()? as usize,
            "--bytes" => wanted.bytes = number()?,
            "--processor-bytes" => wanted.processor_bytes = number()?,
            _ => return Err(USAGE.into()),
        }
    }
    die_with_parent();
    let Checked {
        identity,
        bytes,
        tried_bytes,
        speed,
    } = check::check(&wanted)?;
    let identity = identity
        .unwrap_or_default()
        .map(|byte| format!("{byte:02x}"))
        .concat();
    println!(r#"{{"identity":"{identity}","bytes":{bytes},"tried_bytes":{tried_bytes},"speed":{speed}}}"#);
    Ok(())
}

/// An agent that is no more cannot end it when the device is wanted.
fn die_with_parent() {
    // SAFETY: sets one flag of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: asks a number.
    if unsafe { libc::getppid() } == 1 {
        std::process::exit(1);
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let done = match arguments.next().as_deref() {
        Some("scrub") => scrub_one(arguments),
        Some("check") => check_one(arguments),
        _ => settings().and_then(run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tenure-broker: {why}");
            ExitCode::FAILURE
        }
    }
}
