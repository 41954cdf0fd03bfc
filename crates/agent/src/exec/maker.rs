//! The maker of seats: a process that has been started once and is forked for each seat, so that none pays for
//! starting a program.
//!
//! It does nothing else and knows of no launch: a seat gets its own from the agent. Seats are forked as its siblings,
//! so the agent is their parent and neither hears nor minds when this process ends; it starts another. Ends with its
//! agent. Asked by `node/seat/maker.rs`.

use std::io;
use std::os::fd::AsFd;

use crate::kernel;
use crate::launch::Seat;

/// Makes seats until the agent is gone; in each of them, once, what a thin parent's life came to.
pub(super) fn main(seat: &Seat, sit: impl Fn(&Seat, String) -> io::Result<()>) -> i32 {
    loop {
        let mut cgroup = Vec::new();
        let asked = kernel::receive_fds(&io::stdin(), &mut cgroup);
        // Its way to the agent comes with the question. Without one, the agent is gone.
        let Some(socket) = asked.ok().and_then(|mut fds| fds.pop()) else {
            return 0;
        };
        match kernel::fork_sibling() {
            Ok(kernel::Forked::Child) => {
                // In place of the maker's own way to the agent, which no seat keeps open.
                let seated = kernel::place(&socket, 0).and_then(|()| {
                    drop(socket);
                    let _ = rustix::process::setsid();
                    let _ = kernel::become_subreaper();
                    sit(seat, String::from_utf8_lossy(&cgroup).into_owned())
                });
                return seated.map_or(1, |()| 0);
            }
            Ok(kernel::Forked::Parent(pid)) => answer(pid),
            Err(error) => answer(-error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// The seat's process number, or the number of the error, negative.
fn answer(number: i32) {
    let _ = kernel::send_fds(&io::stdin().as_fd(), &number.to_ne_bytes(), &[]);
}
