//! `tenure-broker`: serves one slice's connections from an inherited or a named socket. See the library.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use tenure_broker::{Settings, run};
use tenure_wire::Listener;

const USAGE: &str = "usage: tenure-broker (--listen-fd N | --listen PATH) [--bulk-mib N]";

fn settings() -> Result<Settings, String> {
    let mut arguments = std::env::args().skip(1);
    let mut listener = None;
    let mut bulk_mib = 4096;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match name.as_str() {
            "--listen-fd" => {
                let fd: i32 = value.parse().map_err(|_| USAGE)?;
                if fd < 3 {
                    return Err(USAGE.into());
                }
                // SAFETY: inherited for this very purpose, and named once.
                listener = Some(Listener::inherited(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
            "--listen" => {
                let path = PathBuf::from(value);
                let bound = Listener::bind(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                listener = Some(bound);
            }
            "--bulk-mib" => bulk_mib = value.parse().map_err(|_| USAGE)?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(Settings {
        listener: listener.ok_or(USAGE)?,
        bulk_bytes: bulk_mib << 20,
    })
}

fn main() -> ExitCode {
    match settings().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tenure-broker: {why}");
            ExitCode::FAILURE
        }
    }
}
