//! The first process of the job's world: it builds the wall from inside, starts the job, reaps what is
//! orphaned, passes signals on, and tells the thin parent how the job ended. When it goes, all go.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use crate::isolate::guard::Guard;
use crate::isolate::root::{self, Own};
use crate::isolate::seccomp::Filter;
use crate::isolate::{cgroup, environment, landlock, settings};
use crate::kernel;
use crate::launch::{Launch, Seat};

/// How a failure begins that is the node's and not the job's.
pub(super) const NODE_FAULT: &str = "node: ";

const SIGNALS: [i32; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// What connects it with the thin parent.
pub(super) struct Ends {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Closed unsaid by a successful start.
    pub failure: OwnedFd,
    pub status: OwnedFd,
    /// Where the launch comes from.
    pub from_parent: OwnedFd,
}

pub(super) fn main(seat: &Seat, cgroups: &[PathBuf], ends: Ends) -> ! {
    kernel::block_signals(&SIGNALS);
    let Ends {
        stdout,
        stderr,
        failure,
        status,
        from_parent,
    } = ends;
    let filter = Filter::new();
    let built = build(seat, cgroups, &status);
    let launched = receive(&from_parent);
    let (launch, network) = match built.and(launched) {
        Ok(Some(given)) => given,
        // Nobody needs the seat.
        Ok(None) => kernel::exit_now(0),
        Err(error) => fail(Some(failure), &format!("{NODE_FAULT}{error}")),
    };
    drop(from_parent);
    let job = finish(seat, &launch, network).and_then(|()| {
        let (mine, jobs) = UnixStream::pair()?;
        match kernel::fork()? {
            kernel::Forked::Child => {
                drop(mine);
                let why = become_job(seat, &launch, &filter, jobs, &stdout, &stderr);
                fail(failure.try_clone().ok(), &why)
            }
            kernel::Forked::Parent(pid) => {
                drop(jobs);
                if launch.user_id.is_some() && seat.namespaces.job_user {
                    map_user(mine, pid, launch.user_id)?;
                }
                Ok(pid)
            }
        }
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

fn build(seat: &Seat, cgroups: &[PathBuf], to_parent: &OwnedFd) -> io::Result<()> {
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
    if seat.namespaces.own {
        seat.namespaces.enter_rest()?;
        root::prepare(&seat.stage, &seat.host_dirs)?;
        kernel::set_hostname("tenure")?;
    } else {
        kernel::become_subreaper()?;
    }
    Ok(())
}

/// The launch and the network, and the allocation's directory as the working directory; none when the parent is
/// gone.
fn receive(from_parent: &OwnedFd) -> io::Result<Option<(Launch, Option<OwnedFd>)>> {
    let mut dir = Vec::new();
    let mut fds = kernel::receive_fds(from_parent, &mut dir)?.into_iter();
    let Some(sealed) = fds.next() else {
        return Ok(None);
    };
    std::env::set_current_dir(std::ffi::OsString::from_vec(dir))?;
    Ok(Some((Launch::unseal(File::from(sealed))?, fds.next())))
}

/// What is this job's own of the wall.
fn finish(seat: &Seat, launch: &Launch, network: Option<OwnedFd>) -> io::Result<()> {
    if !seat.namespaces.own {
        return Ok(());
    }
    let here = std::env::current_dir()?;
    if let Some(network) = network {
        kernel::enter_network(&network)?;
    }
    let bound = launch.guard.as_ref().map(Guard::bound).unwrap_or_default();
    let user_id = launch
        .user_id
        .unwrap_or_else(|| rustix::process::getuid().as_raw());
    root::finish(
        &seat.stage,
        &Own {
            tmp: &here.join("tmp"),
            layers: launch.image.as_ref().map_or(&[], |image| image.layers.as_slice()),
            device_files: &launch.device_files,
            bound: &bound,
            settings: &settings::of(user_id),
            opencl: launch.guard.is_some() || !launch.order.devices.is_empty(),
        },
    )
}

/// Gives the job's user namespace its one user: only a process outside it may.
fn map_user(mut job: UnixStream, pid: i32, user_id: Option<u32>) -> io::Result<()> {
    let Some(id) = user_id else { return Ok(()) };
    let mut ready = [0];
    // Closed unsaid when the job failed before; it says why itself.
    if job.read(&mut ready)? == 1 {
        std::fs::write(format!("/proc/{pid}/uid_map"), format!("{id} {id} 1"))?;
        std::fs::write(format!("/proc/{pid}/gid_map"), format!("{id} {id} 1"))?;
        job.write_all(&[1])?;
    }
    Ok(())
}

/// Enters a user namespace of its own, and waits until it has its user.
fn own_user(mut init: UnixStream) -> io::Result<()> {
    kernel::unshare(libc::CLONE_NEWUSER)?;
    init.write_all(&[1])?;
    init.read_exact(&mut [0])
}

/// Becomes the job; returns only with the reason why not.
fn become_job(
    seat: &Seat,
    launch: &Launch,
    filter: &Filter,
    init: UnixStream,
    stdout: &OwnedFd,
    stderr: &OwnedFd,
) -> String {
    let order = &launch.order;
    let own_tree = seat.namespaces.own;
    if let (Some(image), false) = (&launch.image, own_tree) {
        // Fail closed: without a tree of its own the job would see the host's files.
        return format!(
            "this node cannot give a job the files of an image ({})",
            image.digest
        );
    }
    let home = if own_tree {
        "/tmp".to_owned()
    } else {
        std::env::current_dir()
            .map(|dir| dir.join("tmp").display().to_string())
            .unwrap_or_else(|_| "/".to_owned())
    };
    let guard = launch.guard.as_ref();
    let variables = environment::of(
        order,
        &home,
        guard.map(|guard| guard.variables(own_tree)).unwrap_or_default(),
    );
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
    let unprivileged = kernel::no_core_dumps().and_then(|()| {
        if let Some(id) = launch.user_id {
            if seat.namespaces.job_user {
                own_user(init)?;
            }
            kernel::drop_capabilities();
            kernel::become_user(id, id)?;
        }
        kernel::no_new_privileges()
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
    let writable: Vec<&Path> = seat
        .host_dirs
        .iter()
        .filter(|dir| dir.writable)
        .map(|dir| dir.path.as_path())
        .collect();
    let walled = if own_tree {
        landlock::restrict(&writable)
    } else {
        Ok(())
    };
    if let Err(error) = walled.and_then(|()| filter.install()) {
        return node_fault("wall the job off", error);
    }
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
