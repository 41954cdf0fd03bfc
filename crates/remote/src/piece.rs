//! Long transfers the program waits for, in pieces: while one is copied here, the broker's driver moves the next.
//!
//! Few spans are used again and again, so that bytes on their way stay in the processor's caches and cross its memory
//! no oftener than in one copy. The broker is told that more calls follow each: it keeps its driver's queue filled
//! instead of waiting for one piece before it takes the next.
//!
//! Deliberately absent: transfers nobody waits for; see `transfer`, which calls this.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_wire::{Id, Order, Request, Span};

use crate::abi::OUT_OF_RESOURCES;
use crate::bulk::{Bulk, Room};
use crate::callback::print_what_came;
use crate::command::Command;
use crate::link::{Remote, Ticket};

/// Copies of up to a mebibyte take the way that is best for bytes in caches in most C libraries, the driver's among
/// them; as many as are needed to cover the way there and back.
const PIECE: usize = 1 << 20;
const PIECES: usize = 4;
/// From here on a transfer is long.
pub const LONG: usize = 4 << 20;
/// What is longer is out of the caches again before the program has looked at it.
const PAST: usize = 32 << 20;

/// A piece under way: its answer, its span, and which part of the whole it is.
struct Piece {
    ticket: Ticket<'static>,
    room: Room,
    at: usize,
    bytes: usize,
}

/// Reads `size` bytes to `to`, and waits for them.
///
/// # Safety
/// The program has room for them there, and nobody else looks at it before they have come.
pub unsafe fn read(
    command: &Command,
    size: usize,
    to: *mut u8,
    request: impl Fn(Order, u64, Span) -> Request,
) -> Result<(), i32> {
    let copy = if size < PAST { keep } else { pass };
    let came = |room: &Room, at: usize, bytes: usize| {
        // SAFETY: the span holds the piece; the program has room for the whole, as promised.
        unsafe { copy(room.start(), to.add(at), bytes) };
    };
    transfer(command, size, |_, _, _| (), request, came)
}

/// Writes `size` bytes from `from`, and waits until they are written.
///
/// # Safety
/// The program has them there.
pub unsafe fn write(
    command: &Command,
    size: usize,
    from: *const u8,
    request: impl Fn(Order, u64, Span) -> Request,
) -> Result<(), i32> {
    let goes = |room: &Room, at: usize, bytes: usize| {
        // SAFETY: the span has room for the piece; the program has the whole, as promised.
        unsafe { keep(from.add(at), room.start(), bytes) };
    };
    transfer(command, size, goes, request, |_, _, _| ())
}

/// Sends piece after piece, `before` each is sent and `after` each has come; the first failure ends it. The last has the
/// event, if the program wants one.
fn transfer(
    command: &Command,
    size: usize,
    before: impl Fn(&Room, usize, usize),
    request: impl Fn(Order, u64, Span) -> Request,
    after: impl Fn(&Room, usize, usize),
) -> Result<(), i32> {
    let link = command.link();
    // All before the first call: making room may be a call itself, which would wait for the slots of ours.
    let mut rooms = (0..PIECES)
        .map(|_| Bulk::room(link, PIECE as u64))
        .collect::<Result<Vec<_>, _>>()?;
    let event = command.wants_event().then(|| link.new_id());
    let mut under_way = VecDeque::with_capacity(PIECES);
    let mut sent = 0;
    let mut code = Ok(());
    loop {
        while sent < size && code.is_ok() && !rooms.is_empty() {
            let claim = match link.claim(under_way.is_empty()) {
                Ok(Some(claim)) => claim,
                Ok(None) => break,
                Err(why) => {
                    code = Err(why);
                    break;
                }
            };
            let Some(room) = rooms.pop() else { break };
            let bytes = PIECE.min(size - sent);
            before(&room, sent, bytes);
            let span = Span {
                bytes: bytes as u64,
                ..room.span
            };
            let event = event.filter(|_| sent + bytes == size).unwrap_or(Id::NONE);
            match link.begin(claim, &request(command.order(event), sent as u64, span)) {
                Ok(ticket) => under_way.push_back(Piece {
                    ticket,
                    room,
                    at: sent,
                    bytes,
                }),
                Err(why) => code = Err(why),
            }
            sent += bytes;
        }
        let Some(piece) = under_way.pop_front() else {
            break;
        };
        let Piece {
            ticket,
            room,
            at,
            bytes,
        } = piece;
        match link.end(ticket) {
            Ok(_) => after(&room, at, bytes),
            Err(why) => code = code.and(Err(why)),
        }
        if !link.usable() {
            // The broker may still use these spans; nobody else gets them.
            std::mem::forget((room, under_way));
            return code.and(Err(OUT_OF_RESOURCES));
        }
        rooms.push(room);
    }
    print_what_came(link);
    match (event, code) {
        (Some(id), Ok(())) => command.give(Arc::new(Remote { link, id })),
        // The last piece may have come so far as to make it.
        (Some(id), Err(_)) => link.release(id),
        (None, _) => {}
    }
    code?;
    link.pendings.settle(link)
}

/// Copies what is soon looked at again.
///
/// # Safety
/// `from` holds the bytes, `to` has room for them.
unsafe fn keep(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as promised; a span and the program's memory do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Copies past the caches: memory is written without being read first, which for bytes that come out of a cache is
/// half of all that crosses to it.
///
/// # Safety
/// As [`keep`].
#[cfg(target_arch = "x86_64")]
unsafe fn pass(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: head, whole lines and tail lie within the bytes; lines begin aligned at `to`.
    unsafe {
        keep(from, to, head);
        for line in 0..lines {
            let from = from.add(head + line * LINE).cast::<__m128i>();
            let to = to.add(head + line * LINE).cast::<__m128i>();
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
            for (place, word) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(place), word);
            }
        }
        keep(from.add(tail), to.add(tail), bytes - tail);
        // Others must not see the end of the transfer before its bytes.
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
use keep as pass;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_past_the_caches_copies_all_and_no_more() {
        let from: Vec<u8> = (0..1000u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for (skip, start, bytes) in [
            (0, 0, 1000),
            (0, 3, 900),
            (5, 61, 130),
            (1, 1, 63),
            (9, 64, 64),
            (3, 7, 0),
            (0, 60, 3),
        ] {
            let mut to = vec![0xEE_u8; 1200];
            // SAFETY: both lie within their vectors.
            unsafe { pass(from.as_ptr().add(skip), to.as_mut_ptr().add(start), bytes) };
            assert_eq!(to[start..start + bytes], from[skip..skip + bytes]);
            let mut untouched = to[..start].iter().chain(&to[start + bytes..]);
            assert!(untouched.all(|byte| *byte == 0xEE), "{start} {bytes}");
        }
    }
}
