//! What kernels print: a driver writes it to the process's standard output, which here is a pipe of our own; it is
//! handed to a connection of the job before that learns that its commands ended.
//!
//! Which of several connections a line came from is not known: they are processes of one job, and whichever waits
//! first gets it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use tenure_wire::Notice;

use crate::connection::Connection;
use crate::object::lock;

/// What is kept while nobody asks; the rest is dropped.
const KEPT_MOST: usize = 1 << 20;
const NOTICE_MOST: usize = 32 << 10;

struct Words {
    pipe: Mutex<File>,
    kept: Mutex<Vec<u8>>,
}

static WORDS: OnceLock<Words> = OnceLock::new();
static MAY_PRINT: AtomicBool = AtomicBool::new(false);

/// Puts a pipe in the place of standard output.
pub fn capture() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let reader: OwnedFd = reader.into();
    // SAFETY: our own descriptors; standard output is nobody's but the driver's from now on.
    unsafe {
        if libc::dup2(writer.as_raw_fd(), 1) < 0
            || libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    let watched = reader.try_clone()?;
    let words = Words {
        pipe: Mutex::new(reader.into()),
        kept: Mutex::default(),
    };
    if WORDS.set(words).is_ok() {
        // A kernel must not stop because nobody reads what it prints.
        std::thread::Builder::new().name("print".into()).spawn(move || {
            loop {
                let mut readable = libc::pollfd {
                    fd: watched.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one descriptor to wait for.
                unsafe { libc::poll(&mut readable, 1, -1) };
                collect();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        })?;
    }
    Ok(())
}

/// A program may print from now on.
pub fn expect(source: Option<&[u8]>) {
    const PRINT: &[u8] = b"printf";
    let prints = source.is_none_or(|text| text.windows(PRINT.len()).any(|part| part == PRINT));
    if prints {
        MAY_PRINT.store(true, SeqCst);
    }
}

fn collect() {
    let Some(words) = WORDS.get() else {
        return;
    };
    let mut pipe = lock(&words.pipe);
    let mut some = [0; 16 << 10];
    while let Ok(count @ 1..) = pipe.read(&mut some) {
        let mut kept = lock(&words.kept);
        let room = KEPT_MOST.saturating_sub(kept.len());
        kept.extend_from_slice(&some[..count.min(room)]);
    }
}

/// Gives a connection what was printed by now.
pub fn hand_over(connection: &Connection) {
    if !MAY_PRINT.load(SeqCst) {
        return;
    }
    // SAFETY: flushes the C library's own streams, into which some drivers print.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    collect();
    let Some(words) = WORDS.get() else {
        return;
    };
    let text = std::mem::take(&mut *lock(&words.kept));
    for part in text.chunks(NOTICE_MOST) {
        connection.side.tell(&Notice::Text(part.to_vec()));
    }
}
