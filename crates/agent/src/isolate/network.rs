//! A network for each tenant: its jobs on this node see one another and what policy lets them reach, and nothing
//! else. No job reaches another tenant's, the node itself, its neighbours or a cloud's metadata service.
//!
//! A tenant's network is a namespace of the kernel's, held by a file so that it outlives the agent. With egress it
//! has one cable to the host, which forwards and masks what comes from it and drops the rest. Links are made by
//! `ip`, rules by `nft`; where either is missing there is no egress, and it is said.

mod rules;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tenure_domain::tenancy::policy::{Egress, Network};

use crate::kernel;
use crate::record::write_synced;

/// The type of a file that holds a namespace.
const NAMESPACE_FILES: rustix::fs::FsWord = 0x6e73_6673;

const SHARED: &str = "network: shared with the host, for the agent is not root";
const EGRESS: &str = "network: one per tenant; egress to public addresses by policy";

/// The networks of this node.
pub struct Networks {
    dir: PathBuf,
    /// Told from those of other agents of this host, in names and addresses.
    host_part: u16,
    egress: Result<(), String>,
    known: Mutex<BTreeMap<String, Known>>,
}

/// A network that was made here once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    number: u16,
    max_mbit: Option<u32>,
}

impl Networks {
    /// None where jobs share the host's network; why is noted.
    pub fn open(state_dir: &Path, root: bool, notes: &mut Vec<String>) -> io::Result<Option<Networks>> {
        if !root {
            notes.push(SHARED.to_owned());
            return Ok(None);
        }
        let dir = state_dir.join("networks");
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let known: BTreeMap<String, Known> = match fs::read(state_dir.join("networks.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let host_part = host_part(&dir)?;
        let egress = rules::lay(host_part).and_then(|()| {
            known
                .values()
                .try_for_each(|known| rules::limit(host_part, known.number, known.max_mbit))
                .map_err(|error| error.to_string())
        });
        let networks = Networks {
            dir,
            host_part,
            egress,
            known: Mutex::new(known),
        };
        notes.push(match &networks.egress {
            Ok(()) => EGRESS.to_owned(),
            Err(why) => format!("network: one per tenant; no egress: {why}"),
        });
        Ok(Some(networks))
    }

    /// The file that holds a tenant's network, made where it is not yet.
    pub fn of(&self, tenant: &str, policy: Network) -> io::Result<PathBuf> {
        let name = match policy.egress {
            Egress::None => format!("{tenant} alone"),
            Egress::Internet => format!("{tenant} egress"),
        };
        let egress = policy.egress == Egress::Internet && self.egress.is_ok();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(&name).copied();
        let number = match before {
            Some(before) => before.number,
            // A tenant's network keeps its number, so no address of one is ever another's.
            None => known.values().map(|known| known.number + 1).max().unwrap_or(0),
        };
        if number >= rules::NETWORKS {
            return Err(io::Error::other(
                "all networks set apart for tenants are given away",
            ));
        }
        let now = Known {
            number,
            max_mbit: policy.max_mbit,
        };
        if before != Some(now) {
            let mut next = known.clone();
            next.insert(name, now);
            let state_dir = self.dir.parent().unwrap_or(&self.dir);
            write_synced(state_dir, "networks.json", &serde_json::to_vec(&next)?)?;
            *known = next;
        }
        let path = self.dir.join(number.to_string());
        let stood = stands(&path);
        if !stood {
            make(&path)?;
        }
        if egress && before != Some(now) {
            rules::limit(self.host_part, number, now.max_mbit)?;
        }
        // Last: until then it is not connected, and nothing passes unlimited.
        if egress && !stood {
            connect(self.host_part, number, &path)?;
        }
        Ok(path)
    }
}

/// Takes the networks an agent made and their rules out of the host.
pub fn leave(state_dir: &Path) -> io::Result<()> {
    let dir = state_dir.join("networks");
    let Ok(files) = fs::read_dir(&dir) else {
        return Ok(());
    };
    for file in files.flatten().filter(|file| stands(&file.path())) {
        // Its cable goes with it, when the last process in it has.
        rustix::mount::unmount(file.path(), rustix::mount::UnmountFlags::DETACH)?;
        fs::remove_file(file.path())?;
    }
    rules::remove(host_part(&dir)?);
    Ok(())
}

/// Tells this agent's networks from those of others on the host, in names and addresses.
fn host_part(dir: &Path) -> io::Result<u16> {
    let number = fs::metadata(dir)?.ino();
    Ok(((number ^ number >> 10 ^ number >> 20) & 0x3ff) as u16)
}

/// What networks jobs would get here, for whoever asks before there are any.
pub fn of_this_host(root: bool) -> String {
    if !root {
        return SHARED.to_owned();
    }
    let missing = [("ip", "-V"), ("nft", "--version")]
        .into_iter()
        .find(|(program, ask)| {
            let asked = Command::new(program)
                .arg(ask)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            !asked.is_ok_and(|status| status.success())
        });
    match missing {
        None => EGRESS.to_owned(),
        Some((program, _)) => format!("network: one per tenant; no egress: {program} is not installed"),
    }
}

fn stands(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|facts| facts.f_type == NAMESPACE_FILES)
}

/// Makes a network with nothing but its own loopback, and puts it into a file.
fn make(path: &Path) -> io::Result<()> {
    File::create(path)?;
    let path = path.to_owned();
    apart(move || {
        kernel::unshare(libc::CLONE_NEWNET)?;
        kernel::loopback_up()?;
        rustix::mount::mount_bind("/proc/thread-self/ns/net", &path)?;
        Ok(())
    })
}

/// Lays the cable between a tenant's network and the host.
fn connect(host_part: u16, number: u16, network: &Path) -> io::Result<()> {
    let cable = rules::cable(host_part, number);
    let [ours, theirs] = rules::addresses(host_part, number);
    // One left over by a namespace that is gone.
    let _ = run("ip", &["link", "delete", &cable], "");
    let inside = network.display().to_string();
    run(
        "ip",
        &["-batch", "-"],
        &format!(
            "link add {cable} type veth peer name eth0 netns {inside}\n\
             addr add {ours}/30 dev {cable}\n\
             link set {cable} up\n"
        ),
    )?;
    let lines = format!("addr add {theirs}/30 dev eth0\nlink set eth0 up\nroute add default via {ours}\n");
    let network = File::open(network)?;
    apart(move || {
        kernel::enter_network(&network)?;
        run("ip", &["-batch", "-"], &lines)
    })
}

/// In a thread of its own: what it enters, it never leaves.
fn apart(what: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    std::thread::spawn(what)
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes a network ended")))
}

/// Runs a program of the host with some input; what it complains of is the error.
fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{program}: {}", said.trim())))
    }
}
