//! The wall around a job: what this host can give, decided once, and how each part is built.
//!
//! Namespaces, a file tree of its own, cgroups, a user id per tenant, a filter on kernel calls, Landlock, a clean
//! environment, a network per tenant, and the guard before its slices. Every part that is missing is missing for
//! a reason that `tenure-agent doctor` prints.

pub mod broker;
pub mod cgroup;
pub mod dmem;
pub mod environment;
pub mod front;
pub mod guard;
pub mod landlock;
pub mod mps;
pub mod namespace;
pub mod network;
pub mod resource;
pub mod root;
pub mod seccomp;
pub mod settings;
pub mod user;

use cgroup::Cgroups;
use namespace::Namespaces;

/// What this host gives every job.
#[derive(Debug, Clone)]
pub struct Isolation {
    pub namespaces: Namespaces,
    pub cgroups: Cgroups,
    pub root: bool,
    /// One line for each part: what is there, or why it is not.
    pub notes: Vec<String>,
}

impl Isolation {
    /// Why a worker could not be kept apart from its job here.
    pub fn no_workers(&self) -> Option<String> {
        let apart = self.root && self.namespaces.own;
        (!apart).then(|| {
            "a worker is kept apart by a user id and mounts of its own, for which the agent must be root"
                .to_owned()
        })
    }

    pub fn of_this_host() -> Isolation {
        let root = rustix::process::geteuid().is_root();
        let mut notes = Vec::new();
        let namespaces = Namespaces::of_this_host(root, &mut notes);
        let cgroups = Cgroups::of_this_host(&mut notes);
        notes.push(if root {
            "user ids: one per tenant".to_owned()
        } else {
            "user ids: all jobs run as the agent's own user, for it is not root".to_owned()
        });
        notes.push(match landlock::version() {
            Some(version) => format!("landlock: version {version}"),
            None => "landlock: none, the kernel has it not".to_owned(),
        });
        notes.push("kernel calls: only those that programs use".to_owned());
        Isolation {
            namespaces,
            cgroups,
            root,
            notes,
        }
    }
}
