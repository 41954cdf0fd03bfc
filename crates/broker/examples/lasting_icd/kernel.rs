//! The kernels every program of this device has: those of the scrub and the check (`src/scrub/kernel.rs` and
//! `src/check/speed.rs`, which have them in OpenCL C), and two of a tenant's that leave local memory behind and look at what is there.

use crate::abi::{INVALID_ARG_INDEX, INVALID_VALUE, SUCCESS};
use crate::memory::{LOCAL_BYTES, fault, memory};

#[derive(Clone, Copy, Debug)]
pub enum Argument {
    Number(u64),
    Local(usize),
}

#[derive(Clone, Copy)]
enum What {
    Write,
    Check,
    Local,
    /// `(local, words)`: the guard's.
    ZeroLocal,
    /// `(local, words, value)`
    Leave,
    /// `(local, words, global out)`: adds up what local memory holds, by unit.
    Look,
    /// `(global out, steps, salt)`: the check's (`src/check/speed.rs`).
    Speed,
}

pub struct Kernel {
    what: What,
    arguments: [Argument; 4],
}

fn pattern(at: u64, salt: u32) -> u32 {
    (at as u32).wrapping_mul(2_654_435_761) ^ ((at >> 32) as u32) ^ salt
}

impl Kernel {
    pub fn named(name: &str) -> Option<Kernel> {
        let what = match name {
            "tenure_write" => What::Write,
            "tenure_check" => What::Check,
            "tenure_local" => What::Local,
            "tenure_zero_local" => What::ZeroLocal,
            "leave" => What::Leave,
            "look" => What::Look,
            "tenure_speed" => What::Speed,
            _ => return None,
        };
        Some(Kernel {
            what,
            arguments: [Argument::Number(0); 4],
        })
    }

    pub fn set(&mut self, index: usize, argument: Argument) -> i32 {
        match self.arguments.get_mut(index) {
            Some(place) => {
                *place = argument;
                SUCCESS
            }
            None => INVALID_ARG_INDEX,
        }
    }

    fn number(&self, index: usize) -> u64 {
        match self.arguments[index] {
            Argument::Number(number) => number,
            Argument::Local(bytes) => bytes as u64,
        }
    }

    /// Runs so many groups, each on the unit of its number; `buffer` finds where a handle's memory is.
    pub fn run(&self, groups: usize, buffer: impl Fn(u64) -> (usize, usize)) -> i32 {
        if matches!(self.arguments[0], Argument::Local(bytes) if bytes > LOCAL_BYTES) {
            return INVALID_VALUE;
        }
        let word = |handle: u64, at: u64| {
            let (start, bytes) = buffer(handle);
            assert!((at as usize + 1) * 4 <= bytes, "inside its buffer");
            // SAFETY: inside the device's memory, as just checked.
            unsafe { memory().start().add(start + at as usize * 4).cast::<u32>() }
        };
        let words = self.number(1);
        let salt = self.number(2) as u32;
        // SAFETY: every pointer below is into the device's map, at a place checked by `word` or below the local size.
        unsafe {
            match self.what {
                What::Write => {
                    for at in 0..words {
                        *word(self.number(0), at) = pattern(at, salt);
                    }
                    if fault() == "stuck" && words > 5000 {
                        *word(self.number(0), 5000) = 0x5EC2_E7ED;
                    }
                }
                What::Check => {
                    let wrong = (0..words).filter(|&at| *word(self.number(0), at) != pattern(at, salt));
                    *word(self.number(3), 0) += wrong.count() as u32;
                }
                What::Local => {
                    for group in 0..groups {
                        let local = memory().local(group);
                        for at in 0..words {
                            *local.add(at as usize) = pattern(at, salt);
                        }
                        let wrong = (0..words).filter(|&at| *local.add(at as usize) != pattern(at, salt));
                        *word(self.number(3), 0) += wrong.count() as u32;
                        (0..words).for_each(|at| *local.add(at as usize) = 0);
                    }
                }
                What::ZeroLocal => {
                    for group in 0..groups {
                        (0..words).for_each(|at| *memory().local(group).add(at as usize) = 0);
                    }
                }
                What::Leave => {
                    for group in 0..groups {
                        (0..words).for_each(|at| *memory().local(group).add(at as usize) = salt);
                    }
                }
                What::Speed => {
                    // One that claims to compute and does not.
                    let steps = if fault() == "idle" { 0 } else { words as u32 };
                    for item in 0..groups as u32 * 64 {
                        let first = item.wrapping_mul(2_654_435_761) ^ salt;
                        *word(self.number(0), item.into()) = (0..steps).fold(first, |here, at| {
                            (here ^ (here >> 15)).wrapping_mul(2_246_822_519).wrapping_add(at)
                        });
                    }
                }
                What::Look => {
                    for group in 0..groups {
                        let sum =
                            (0..words).fold(0u32, |sum, at| sum | *memory().local(group).add(at as usize));
                        *word(self.number(2), group as u64) = sum;
                    }
                }
            }
        }
        SUCCESS
    }
}
