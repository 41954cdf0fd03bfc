//! How fast a device computes: steps that follow from one another, so that none can be left out, in as many places at once
//! as fill it. The host does the same for a few of them, and a device that says otherwise did not do the work.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use crate::abi::Handle;
use crate::driver::cl;
use crate::scrub::device::{Context, Piece, compute_units, group_size, largest};
use crate::scrub::kernel::{Argument, launch, of, program};
use crate::scrub::seed;

/// The step is `step` below.
const SOURCE: &CStr = c"
__kernel void tenure_speed(__global uint *out, uint steps, uint salt) {
    uint here = (uint)get_global_id(0) * 2654435761u ^ salt;
    for (uint at = 0; at < steps; at++) here = (here ^ (here >> 15)) * 2246822519u + at;
    out[get_global_id(0)] = here;
}
";

/// Groups for each compute unit: enough to hide what memory and launches take.
const GROUPS: usize = 16;
const FIRST_STEPS: u32 = 256;
const MOST_STEPS: u32 = 1 << 22;
/// A launch that takes this long is measured well by the host's clock.
const LONG: Duration = Duration::from_millis(50);
/// The best of so many counts: whatever else the machine does only ever makes it slower.
const ROUNDS: usize = 5;
/// Places the host works out itself.
const ASKED: usize = 4;

struct Kernel(Handle);

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: a live handle, released once.
        unsafe { (cl().release_kernel)(self.0) };
    }
}

/// Million steps a second.
pub(super) fn measure(context: &Context) -> Result<u64, String> {
    let built = program(context, SOURCE)?;
    let kernel = Kernel(built.kernel(c"tenure_speed")?);
    let most = (largest(context.device) / 16 / 4).max(1) as usize;
    let items = (compute_units(context.device) as usize * group_size(context.device) * GROUPS).min(most);
    let out = Piece::new(context, items as u64 * 4)?;
    let salt = seed()?;
    let run = |steps: u32| -> Result<Duration, String> {
        let arguments = [
            of(&out.handle),
            Argument::of_number(&steps),
            Argument::of_number(&salt),
        ];
        let begun = Instant::now();
        launch(context, kernel.0, &arguments, items, None)?;
        Ok(begun.elapsed())
    };
    let mut steps = FIRST_STEPS;
    while run(steps)? < LONG && steps < MOST_STEPS {
        steps *= 2;
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        best = best.min(run(steps)?);
        are_right(context, &out, items, steps, salt)?;
        context.zero(&out)?;
    }
    let done = items as u128 * u128::from(steps) * 1000;
    Ok(u64::try_from(done / best.as_nanos().max(1)).unwrap_or(u64::MAX))
}

fn are_right(context: &Context, out: &Piece, items: usize, steps: u32, salt: u32) -> Result<(), String> {
    for asked in 0..ASKED {
        let item = items * asked / ASKED;
        let said = context.read(out, item as u64, 1)?;
        if said != [result(item as u32, steps, salt)] {
            return Err("what was to be computed was not".to_owned());
        }
    }
    Ok(())
}

fn step(here: u32, at: u32) -> u32 {
    (here ^ (here >> 15)).wrapping_mul(2_246_822_519).wrapping_add(at)
}

fn result(item: u32, steps: u32, salt: u32) -> u32 {
    (0..steps).fold(item.wrapping_mul(2_654_435_761) ^ salt, step)
}
