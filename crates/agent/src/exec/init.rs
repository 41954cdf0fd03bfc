//! The first process of the job's world: it builds the wall from inside, starts the job, reaps what is
//! orphaned, passes signals on, and tells the thin parent how the job ended. When it goes, all go.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use crate::isolate::{cgroup, environment, mount};
use crate::kernel;
use crate::launch::Launch;

/// How a failure begins that is the node's and not the job's.
pub(super) const NODE_FAULT: &str = "node: ";

const SIGNALS: [i32; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// The writing ends of the pipes to the thin parent.
pub(super) struct Ends {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Closed unsaid by a successful start.
    pub failure: OwnedFd,
    pub status: OwnedFd,
}

pub(super) fn main(launch: Launch, cgroups: &[PathBuf], ends: Ends) -> ! {
    kernel::block_signals(&SIGNALS);
    let Ends {
        stdout,
        stderr,
        failure,
        status,
    } = ends;
    let built = build(&launch, cgroups, &status);
    let job = built.and_then(|()| match kernel::fork()? {
        kernel::Forked::Child => {
            let why = become_job(&launch, &stdout, &stderr);
            fail(failure.try_clone().ok(), &why)
        }
        kernel::Forked::Parent(pid) => Ok(pid),
    });
    let job = match job {
        Ok(job) => job,
        Err(error) => fail(Some(failure), &format!("{NODE_FAULT}{error}")),
    };
    drop((launch, stdout, stderr, failure));
    loop {
        match kernel::next_signal(&SIGNALS) {
            libc::SIGTERM => kernel::kill(-job, libc::SIGTERM),
            _ => {
                while let Some((pid, how)) = kernel::reap(-1, false) {
                    if pid == job {
                        let _ = File::from(status).write_all(&how.to_ne_bytes());
                        kernel::exit_now(0);
                    }
                }
            }
        }
    }
}

fn fail(failure: Option<OwnedFd>, why: &str) -> ! {
    if let Some(failure) = failure {
        let _ = File::from(failure).write_all(why.as_bytes());
    }
    kernel::exit_now(127)
}

fn build(launch: &Launch, cgroups: &[PathBuf], to_parent: &OwnedFd) -> io::Result<()> {
    kernel::die_with_parent()?;
    // The parent may have died before that was set: then nobody reads.
    let mut fds = [PollFd::new(to_parent, PollFlags::empty())];
    poll(
        &mut fds,
        Some(&rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    if fds[0].revents().contains(PollFlags::ERR) {
        kernel::exit_now(1);
    }
    cgroup::enter(cgroups)?;
    if launch.namespaces.own {
        launch.namespaces.enter_rest()?;
        mount::private()?;
        mount::own_tmp(Path::new("tmp"))?;
        kernel::set_hostname("tenure")?;
    } else {
        kernel::become_subreaper()?;
    }
    Ok(())
}

/// Becomes the job; returns only with the reason why not.
fn become_job(launch: &Launch, stdout: &OwnedFd, stderr: &OwnedFd) -> String {
    let order = &launch.order;
    let home = if launch.namespaces.own {
        "/tmp".to_owned()
    } else {
        std::env::current_dir()
            .map(|dir| dir.join("tmp").display().to_string())
            .unwrap_or_else(|_| "/".to_owned())
    };
    let variables = environment::of(order, &home);
    let environment = match environment::as_texts(&variables) {
        Ok(texts) => texts,
        Err(why) => return why,
    };
    let arguments: Result<Vec<CString>, _> = order
        .command
        .iter()
        .map(|argument| CString::new(argument.as_str()))
        .collect();
    let Ok(arguments) = arguments else {
        return "the command has a zero byte".to_owned();
    };
    let Some(program) = order.command.first() else {
        return "there is no command".to_owned();
    };

    let node_fault = |what: &str, error: io::Error| format!("{NODE_FAULT}{what}: {error}");
    let placed = kernel::place(stdout, 1).and_then(|()| kernel::place(stderr, 2));
    if let Err(error) = placed {
        return node_fault("give the job its outputs", error);
    }
    let _ = rustix::process::setsid();
    let unprivileged = kernel::no_core_dumps()
        .and_then(|()| kernel::no_new_privileges())
        .and_then(|()| {
            if let Some(id) = launch.user_id {
                kernel::drop_capabilities();
                kernel::become_user(id, id)?;
            }
            Ok(())
        });
    if let Err(error) = unprivileged {
        return node_fault("give up privileges", error);
    }
    let workdir = order.workdir.as_deref().unwrap_or(&home);
    if let Err(error) = std::env::set_current_dir(workdir) {
        return format!("cannot enter the working directory {workdir}: {error}");
    }
    kernel::close_on_exec_from_3();
    kernel::reset_signals();
    let mut why = format!("{program} was not found");
    for place in environment::places(program, &variables) {
        let Ok(path) = CString::new(place) else {
            return "the command has a zero byte".to_owned();
        };
        let error = kernel::execute(&path, &arguments, &environment);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            _ => why = format!("cannot execute {program}: {error}"),
        }
    }
    why
}
