//! Scrubbing a device between tenants: as much of its memory as it gives is overwritten and read back, then its
//! local memory, which no allocation clears, and at last all of it is left zero.
//!
//! What is written differs from word to word, from piece to piece and from scrub to scrub, so that neither memory
//! that is not there, nor one piece standing for two, nor an older scrub's passes for this one. Deliberately absent:
//! when a device is scrubbed and who vouches for it (the agent, which starts this as a process of its own, without the
//! guard in front of the driver).

pub(crate) mod device;
pub(crate) mod kernel;

use crate::abi::Handle;
use crate::driver::{self, cl};
use device::{Context, Piece};
use kernel::Kernels;

/// Which device, and how much of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The platform's name, and the device's place in it.
    pub platform: String,
    pub index: usize,
    /// As much as is hoped for; the device may give less.
    pub bytes: u64,
    /// As much as it must give.
    pub least: u64,
    /// Of a processor, whose memory comes zeroed from the kernel to every process, no more than this.
    pub processor_bytes: u64,
}

/// What was overwritten, read back and found right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrubbed {
    pub bytes: u64,
    /// As much as the device was asked for.
    pub asked: u64,
    /// Local memory of one compute unit.
    pub local_bytes: u64,
    pub compute_units: u32,
}

/// The largest piece asked for, and the smallest worth asking for.
const PIECE_MOST: u64 = 256 << 20;
const PIECE_LEAST: u64 = 64 << 10;
/// How often each compute unit's local memory is written, on average: which unit runs which group nobody says.
const ROUNDS: usize = 8;

/// Scrubs a device. An error says what was not right; the device is then not to be handed on.
pub fn scrub(wanted: &Wanted) -> Result<Scrubbed, String> {
    driver::open_once()?;
    let device = device::find(&wanted.platform, wanted.index)?;
    let bytes = if device::is_processor(device) {
        wanted.bytes.min(wanted.processor_bytes)
    } else {
        wanted.bytes
    };
    scrub_device(device, bytes, wanted.least.min(bytes), seed()?)
}

fn scrub_device(device: Handle, bytes: u64, least: u64, seed: u32) -> Result<Scrubbed, String> {
    let context = Context::new(device)?;
    let kernels = Kernels::new(&context)?;
    let pieces = take(&context, bytes);
    let taken: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    if taken < least {
        return Err(format!("the device gave {taken} bytes to scrub, not {least}"));
    }
    write_and_read(&context, &kernels, &pieces, seed)?;
    for piece in &pieces {
        context.zero(piece)?;
    }
    let (local_bytes, compute_units) = (device::local_bytes(device), device::compute_units(device));
    kernels.local(&context, compute_units as usize, ROUNDS, local_bytes, seed)?;
    // SAFETY: a live queue.
    device::done(unsafe { (cl().finish)(context.queue) }, "finish")?;
    Ok(Scrubbed {
        bytes: taken,
        asked: bytes,
        local_bytes,
        compute_units,
    })
}

/// All are written before any is read: were one the memory of another, it would show.
pub(crate) fn write_and_read(
    context: &Context,
    kernels: &Kernels,
    pieces: &[Piece],
    seed: u32,
) -> Result<(), String> {
    for (number, piece) in pieces.iter().enumerate() {
        kernels.write(context, piece, salt(seed, number))?;
    }
    for (number, piece) in pieces.iter().enumerate() {
        kernels.check(context, piece, salt(seed, number))?;
        canary(context, piece, salt(seed, number))?;
    }
    Ok(())
}

/// Memory up to so many bytes, in pieces, all held at once.
pub(crate) fn take(context: &Context, bytes: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut left = bytes;
    let mut size = PIECE_MOST.min(device::largest(context.device));
    while left >= 4 && size >= PIECE_LEAST.min(left) {
        match Piece::new(context, size.min(left) & !3) {
            Ok(piece) => {
                left -= piece.bytes;
                pieces.push(piece);
            }
            Err(_) => size /= 2,
        }
    }
    pieces
}

/// What a piece's ends hold, seen from the host: the kernels' word is not enough.
fn canary(context: &Context, piece: &Piece, salt: u32) -> Result<(), String> {
    let words = piece.words();
    let run = words.min(1024);
    for from in [0, words - run] {
        let seen = context.read(piece, from, run as usize)?;
        let right = (from..).zip(&seen).all(|(at, &word)| word == pattern(at, salt));
        if !right {
            return Err("what was written to device memory was not read back".to_owned());
        }
    }
    Ok(())
}

fn salt(seed: u32, number: usize) -> u32 {
    seed ^ (number as u32).wrapping_mul(0x9E37_79B9)
}

/// The word that belongs at a place; `kernel.rs` has the same in OpenCL C.
fn pattern(at: u64, salt: u32) -> u32 {
    (at as u32).wrapping_mul(2_654_435_761) ^ ((at >> 32) as u32) ^ salt
}

pub(crate) fn seed() -> Result<u32, String> {
    let mut bytes = [0; 4];
    let mut random = std::fs::File::open("/dev/urandom").map_err(|error| error.to_string())?;
    std::io::Read::read_exact(&mut random, &mut bytes).map_err(|error| error.to_string())?;
    // Never zero: a device that always reads as zero must not pass.
    Ok(u32::from_ne_bytes(bytes) | 1)
}
