//! Chains of structures: finding a link, and taking one out of a chain that is not ours to write.

use super::abi::{Link, SHORT_LINKS};

/// The first link that satisfies `wanted`.
///
/// # Safety
/// `at` begins a chain of live structures.
pub unsafe fn find(mut at: *mut Link, wanted: impl Fn(*mut Link, u32) -> bool) -> Option<*mut Link> {
    while !at.is_null() {
        // SAFETY: a live link, as promised.
        let link = unsafe { *at };
        if wanted(at, link.kind) {
            return Some(at);
        }
        at = link.next;
    }
    None
}

/// A link of a kind.
///
/// # Safety
/// As [`find`].
pub unsafe fn of_kind(at: *mut Link, kind: u32) -> Option<*mut Link> {
    // SAFETY: as promised.
    unsafe { find(at, |_, found| found == kind) }
}

/// A chain without one of its links: those before it are copied, so they must be of a kind whose length is known.
pub struct Without {
    copies: Vec<[u64; 3]>,
    first: *mut Link,
}

impl Without {
    /// # Safety
    /// As [`find`]; `out` is one of its links.
    pub unsafe fn new(mut at: *mut Link, out: *mut Link) -> Option<Without> {
        let mut copies: Vec<[u64; 3]> = Vec::new();
        while at != out {
            // SAFETY: a live link before `out`.
            let link = unsafe { *at };
            if !SHORT_LINKS.contains(&link.kind) {
                return None;
            }
            // SAFETY: structures of these kinds are 24 bytes long.
            copies.push(unsafe { at.cast::<[u64; 3]>().read() });
            at = link.next;
        }
        // SAFETY: live, as promised.
        let mut first = unsafe { (*out).next };
        for copy in copies.iter_mut().rev() {
            copy[1] = first as u64;
            first = copy.as_mut_ptr().cast();
        }
        Some(Without { copies, first })
    }

    /// Where the chain begins; good while this value is.
    pub fn first(&self) -> *mut Link {
        debug_assert!(self.copies.is_empty() || !self.first.is_null());
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_taken_out_and_the_rest_stays() {
        let mut last = [9u64, 0, 0];
        let mut out = [7u64, last.as_mut_ptr() as u64, 0];
        let mut before = [u64::from(SHORT_LINKS[0]), out.as_mut_ptr() as u64, 42];
        let at: *mut Link = before.as_mut_ptr().cast();
        // SAFETY: a chain of three structures that live here.
        unsafe {
            let found = of_kind(at, 7).unwrap();
            let without = Without::new(at, found).unwrap();
            assert!(of_kind(without.first(), 7).is_none());
            let copy = without.first().cast::<[u64; 3]>();
            assert_eq!((*copy)[2], 42);
            assert_eq!((*copy)[1], last.as_mut_ptr() as u64);
            assert_eq!(
                before[1],
                out.as_mut_ptr() as u64,
                "the program's own chain is as it was"
            );
            out[0] = 8;
            let mut unknown = [7777u64, out.as_mut_ptr() as u64, 0];
            let found = of_kind(unknown.as_mut_ptr().cast(), 8).unwrap();
            assert!(Without::new(unknown.as_mut_ptr().cast(), found).is_none());
        }
    }
}
