//! The first process of the job's world: it builds the wall from inside, starts the job, reaps what is
//! orphaned, passes signals on, and tells the thin parent how the job ended. When it goes, all go.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use tenure_api::channel::stream::Size;

use super::door::{Door, Input};
use super::status::tell_walls;
use super::tally::{Denials, Tally};
use super::terminal;
use crate::isolate::broker::{Brokered, Worker};
use crate::isolate::guard::Guard;
use crate::isolate::root::{self, Own};
use crate::isolate::seccomp::Filter;
use crate::isolate::{cgroup, environment, landlock, resource, settings};
use crate::launch::{Launch, Seat};
use crate::{kernel, saved};

/// How a failure begins that is the node's and not the job's.
pub(super) const NODE_FAULT: &str = "node: ";

/// What a worker's compiler has for its files.
const WORKER_TMP_MIB: u64 = 512;

/// A terminal's, until somebody looks at it with one of their own.
const FIRST_SIZE: Size = Size { rows: 24, cols: 80 };

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

/// What everything inside has in common.
pub(super) struct World<'a> {
    seat: &'a Seat,
    pub launch: Launch,
    filter: Filter,
    /// Where denied system calls are counted; none where they cannot be.
    pub tally: Option<Tally>,
    /// A worker's, for its job and for the agent, to be its descriptors 3 and 4.
    listeners: Vec<OwnedFd>,
}

/// A program's standard descriptors.
pub(super) struct Stdio {
    /// None reads nothing.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// They are a terminal, to be the program's own.
    pub terminal: bool,
}

impl Stdio {
    pub(super) fn terminal(theirs: &OwnedFd) -> io::Result<Stdio> {
        Ok(Stdio {
            stdin: Some(theirs.try_clone()?),
            stdout: theirs.try_clone()?,
            stderr: theirs.try_clone()?,
            terminal: true,
        })
    }
}

/// What is run inside.
pub(super) struct Program<'a> {
    pub command: &'a [String],
    pub stdio: &'a Stdio,
    /// What its terminal is called, where it is not for the job's own settings to say.
    pub terminal: Option<String>,
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
    let (launch, mut given) = match built.and(launched) {
        Ok(Some(given)) => given,
        // Nobody needs the seat.
        Ok(None) => kernel::exit_now(0),
        Err(error) => fail(Some(failure), &format!("{NODE_FAULT}{error}")),
    };
    let served = if launch.worker.is_some() { 2 } else { 0 };
    let listeners: Vec<OwnedFd> = given.drain(..served.min(given.len())).collect();
    let world = World {
        seat,
        launch,
        filter,
        tally: Tally::create().ok(),
        listeners,
    };
    // Before the root changes: the door is in the allocation's directory.
    let started = Door::new(&SIGNALS).and_then(|mut door| {
        finish(seat, &world.launch, given)?;
        if world.launch.order.is_traced() {
            tell_walls(status.as_fd());
        }
        let (stdio, input) = stdio(&world.launch, stdout, stderr, &from_parent)?;
        door.set_input(input);
        let program = Program {
            command: &world.launch.order.command,
            stdio: &stdio,
            terminal: None,
        };
        let (job, denials) = start(&world, |init| {
            let why = become_job(&world, init, &program);
            fail(failure.try_clone().ok(), &why)
        })?;
        door.set_denials(denials);
        Ok((door, job))
    });
    let (mut door, job) = match started {
        Ok(started) => started,
        Err(error) => fail(Some(failure), &format!("{NODE_FAULT}{error}")),
    };
    drop((from_parent, failure));
    loop {
        match door.next_signal(&world) {
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

/// The job's standard descriptors, and where others send what it reads. A terminal's our end goes to the thin
/// parent, which keeps what is written there.
fn stdio(
    launch: &Launch,
    stdout: OwnedFd,
    stderr: OwnedFd,
    to_parent: &OwnedFd,
) -> io::Result<(Stdio, Input)> {
    let order = &launch.order;
    if order.tty {
        let (ours, theirs) = terminal::open(FIRST_SIZE, launch.user_id)?;
        kernel::send_fds(to_parent, b"terminal", &[ours.as_fd()])?;
        return Ok((Stdio::terminal(&theirs)?, Input::Terminal(ours)));
    }
    let (stdin, input) = if order.stdin {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        (Some(read), Input::Pipe(write))
    } else {
        (None, Input::Nothing)
    };
    let stdio = Stdio {
        stdin,
        stdout,
        stderr,
        terminal: false,
    };
    Ok((stdio, input))
}

/// Starts a process inside: `child` never returns.
pub(super) fn start(world: &World<'_>, child: impl FnOnce(UnixStream)) -> io::Result<(i32, Denials)> {
    let (mine, theirs) = UnixStream::pair()?;
    match kernel::fork()? {
        kernel::Forked::Child => {
            drop(mine);
            child(theirs);
            kernel::exit_now(127)
        }
        kernel::Forked::Parent(pid) => {
            drop(theirs);
            if world.launch.user_id.is_some() && world.seat.namespaces.job_user {
                map_user(&mine, pid, world.launch.user_id)?;
            }
            Ok((pid, Denials::Awaited(mine)))
        }
    }
}

pub(super) fn fail(failure: Option<OwnedFd>, why: &str) -> ! {
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

/// The launch and what came with it, and the allocation's directory as the working directory; none when the parent
/// is gone.
fn receive(from_parent: &OwnedFd) -> io::Result<Option<(Launch, Vec<OwnedFd>)>> {
    let mut dir = Vec::new();
    let mut fds = kernel::receive_fds(from_parent, &mut dir)?.into_iter();
    let Some(sealed) = fds.next() else {
        return Ok(None);
    };
    std::env::set_current_dir(std::ffi::OsString::from_vec(dir))?;
    Ok(Some((Launch::unseal(File::from(sealed))?, fds.collect())))
}

/// What is this job's own of the wall.
fn finish(seat: &Seat, launch: &Launch, given: Vec<OwnedFd>) -> io::Result<()> {
    let names = launch.order.volumes.iter().map(|volume| volume.name.clone());
    let mut given = given.into_iter();
    let volumes: Vec<(String, OwnedFd)> = names.zip(given.by_ref()).collect();
    // Fail closed: a job that finds nothing where its volume should be might start anew.
    if volumes.len() < launch.order.volumes.len() || !seat.namespaces.own && !volumes.is_empty() {
        return Err(io::Error::other("its volumes cannot be given to the job"));
    }
    if !seat.namespaces.own {
        return saved::make(&std::env::current_dir()?).map(drop);
    }
    if let Some(network) = given.next() {
        kernel::enter_network(&network)?;
    }
    let mut bound = launch.guard.as_ref().map(Guard::bound).unwrap_or_default();
    bound.extend(launch.brokered.iter().flat_map(Brokered::bound));
    bound.extend(launch.worker.iter().flat_map(Worker::bound));
    bound.extend(launch.bound.iter().cloned());
    let user_id = launch
        .user_id
        .unwrap_or_else(|| rustix::process::getuid().as_raw());
    root::finish(
        &seat.stage,
        &Own {
            tmp_mib: match launch.worker {
                Some(_) => WORKER_TMP_MIB,
                // Half, as of a machine: who fills it is told so, and is not ended.
                None => launch.order.memory_mib.div_ceil(2),
            },
            layers: launch.image.as_ref().map_or(&[], |image| image.layers.as_slice()),
            device_files: &launch.device_files,
            bound: &bound,
            volumes: &volumes,
            settings: &settings::of(user_id),
            // One with a worker finds no driver but the small library.
            opencl: launch.brokered.is_none() && !launch.order.devices.is_empty(),
        },
    )
}

/// Gives the job's user namespace its one user: only a process outside it may.
fn map_user(mut job: &UnixStream, pid: i32, user_id: Option<u32>) -> io::Result<()> {
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
fn own_user(mut init: &UnixStream) -> io::Result<()> {
    kernel::unshare(libc::CLONE_NEWUSER)?;
    init.write_all(&[1])?;
    init.read_exact(&mut [0])
}

/// Becomes the job; returns only with the reason why not.
pub(super) fn become_job(world: &World<'_>, init: UnixStream, program: &Program<'_>) -> String {
    let launch = &world.launch;
    let order = &launch.order;
    let own_tree = world.seat.namespaces.own;
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
    let mut for_devices = guard.map(|guard| guard.variables(own_tree)).unwrap_or_default();
    for_devices.extend(launch.brokered.iter().flat_map(Brokered::variables));
    for_devices.extend(launch.variables.iter().cloned());
    let mut variables = environment::of(order, &home, for_devices);
    match saved::seen_as(own_tree) {
        Ok(path) => variables.push((saved::VARIABLE.to_owned(), path.display().to_string())),
        Err(error) => return format!("{NODE_FAULT}name what it saves: {error}"),
    }
    if let Some(terminal) = &program.terminal {
        variables.retain(|(name, _)| name != "TERM");
        variables.push(("TERM".to_owned(), terminal.clone()));
    }
    let environment = match environment::as_texts(&variables) {
        Ok(texts) => texts,
        Err(why) => return why,
    };
    let arguments: Result<Vec<CString>, _> = program
        .command
        .iter()
        .map(|argument| CString::new(argument.as_str()))
        .collect();
    let Ok(arguments) = arguments else {
        return "the command has a zero byte".to_owned();
    };
    let Some(name) = program.command.first() else {
        return "there is no command".to_owned();
    };

    if let Err(error) = place(program.stdio) {
        return format!("{NODE_FAULT}give the job its outputs: {error}");
    }
    if let Err(why) = confine(world, init) {
        return why;
    }
    let workdir = order.workdir.as_deref().unwrap_or(&home);
    if let Err(error) = std::env::set_current_dir(workdir) {
        return format!("cannot enter the working directory {workdir}: {error}");
    }
    let mut why = format!("{name} was not found");
    for place in environment::places(name, &variables) {
        let Ok(path) = CString::new(place) else {
            return "the command has a zero byte".to_owned();
        };
        let error = kernel::execute(&path, &arguments, &environment);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            _ => why = format!("cannot execute {name}: {error}"),
        }
    }
    why
}

/// Puts a program's descriptors where it looks for them, in a session of its own.
fn place(stdio: &Stdio) -> io::Result<()> {
    match &stdio.stdin {
        Some(stdin) => kernel::place(stdin, 0)?,
        // What stands there is the seat's way to the agent.
        None => kernel::place(&File::open("/dev/null")?, 0)?,
    }
    kernel::place(&stdio.stdout, 1)?;
    kernel::place(&stdio.stderr, 2)?;
    let _ = rustix::process::setsid();
    if stdio.terminal {
        rustix::process::ioctl_tiocsctty(&stdio.stdout)?;
    }
    Ok(())
}

/// Gives up, in the calling process and for good, everything that nothing inside may have. The one way to be
/// inside: the job goes through here, and whoever enters it.
pub(super) fn confine(world: &World<'_>, init: UnixStream) -> Result<(), String> {
    let World {
        seat,
        launch,
        filter,
        tally,
        listeners,
    } = world;
    let node_fault = |what: &str, error: io::Error| format!("{NODE_FAULT}{what}: {error}");
    let limited = kernel::no_core_dumps().and_then(|()| resource::limit(launch.worker.as_ref()));
    let unprivileged = limited.and_then(|()| {
        if let Some(id) = launch.user_id {
            if seat.namespaces.job_user {
                own_user(&init)?;
            }
            kernel::drop_capabilities();
            kernel::become_user(id, id)?;
        }
        kernel::no_new_privileges()
    });
    unprivileged.map_err(|error| node_fault("give up privileges", error))?;
    kernel::close_on_exec_from_3();
    pass_on_all(listeners).map_err(|error| node_fault("give the worker its listeners", error))?;
    kernel::reset_signals();
    let volumes = launch.order.volumes.iter().filter(|volume| !volume.read_only);
    let volumes: Vec<PathBuf> = volumes
        .map(|volume| Path::new(root::VOLUMES_DIR).join(&volume.name))
        .collect();
    let host_dirs = seat.host_dirs.iter().filter(|dir| dir.writable);
    let bound = launch.bound.iter().filter(|bound| bound.writable);
    let writable: Vec<&Path> = host_dirs
        .map(|dir| dir.path.as_path())
        .chain(volumes.iter().map(PathBuf::as_path))
        .chain(bound.map(|bound| bound.to.as_path()).filter(|to| to.is_dir()))
        .collect();
    let walled = if seat.namespaces.own {
        landlock::restrict(&writable)
    } else {
        Ok(())
    };
    walled
        .and_then(|()| match launch.worker {
            Some(_) => Filter::of_worker().install(),
            None => Ok(()),
        })
        .and_then(|()| match tally {
            Some(_) => install_heard(filter, &init),
            None => filter.install(),
        })
        .map_err(|error| node_fault("wall the job off", error))
}

/// Gives the next program these descriptors, from 3 on.
fn pass_on_all(fds: &[OwnedFd]) -> io::Result<()> {
    // Out of the way first: one may have the other's number.
    let apart = fds
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3 + fds.len() as i32));
    let apart: Vec<OwnedFd> = apart.collect::<Result<_, _>>()?;
    for (fd, at) in apart.iter().zip(3..) {
        kernel::pass_on(fd, at)?;
    }
    Ok(())
}

/// Installs the filter and hands its listener to the first process. A kernel that has none gets the filter alone.
fn install_heard(filter: &Filter, init: &UnixStream) -> io::Result<()> {
    match filter.install_heard() {
        Ok(listener) => kernel::send_fds(init, b"calls", &[listener.as_fd()]),
        Err(_) => filter.install(),
    }
}
