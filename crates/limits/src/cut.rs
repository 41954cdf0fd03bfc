//! A page that is cut short under its mappings: whoever touches one then is ended by a signal. Where the process asked
//! for it, memory of its own takes the place of what was cut, and the page says that it is lost.
//!
//! Only the agent asks: a program's signals are its own. Deliberately absent: keeping others from cutting the file,
//! which is the wall's business.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::layout::{PAGE_SIZE, Page};

/// Mappings of this process that are watched.
const PLACES: usize = 512;

struct Place {
    /// Zero: free.
    start: AtomicUsize,
    lost: AtomicBool,
}

/// Read by the signal's handler, so atomics only.
static MAPPED: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; PLACES];

/// What stood there before; set before the handler is.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From here on this process outlives pages that are cut short.
pub fn outlive_cut_pages() {
    // SAFETY: an all-zero action is valid; the handler is a plain function that only reads atomics and maps memory.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 || BEFORE.set(before).is_err() {
            return;
        }
        action.sa_sigaction = cut as *const () as usize;
        // A thread whose stack is at its end must hear it too.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn cut(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a live siginfo to a handler that asked for one.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &MAPPED {
        let start = place.start.load(Acquire);
        if start == 0 || !(start..start + PAGE_SIZE).contains(&address) {
            continue;
        }
        // SAFETY: replaces a mapping of ours, which the table holds until just before it is unmapped, by one of the same
        // length and rights; what is there is made of atomics that are valid for all bits.
        let mapped = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                PAGE_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if mapped != libc::MAP_FAILED {
            place.lost.store(true, Release);
            return;
        }
    }
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: only sets the default, under which the instruction, done again, ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the kernel would have called it with just these.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

/// A mapping's place in the table; none where it is full, and then nothing is outlived.
pub(crate) struct Watched(Option<&'static Place>);

impl Watched {
    pub fn new(page: NonNull<Page>) -> Watched {
        let start = page.as_ptr() as usize;
        let is_free = |place: &&Place| place.start.compare_exchange(0, start, Release, Relaxed).is_ok();
        Watched(MAPPED.iter().find(is_free))
    }

    /// Whether what is mapped is no longer the file.
    pub fn is_lost(&self) -> bool {
        self.0.is_some_and(|place| place.lost.load(Acquire))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.lost.store(false, Relaxed);
            place.start.store(0, Release);
        }
    }
}
