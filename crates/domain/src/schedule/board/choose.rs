//! Which GPUs of a row a shape gets.

use super::row::{GpuRoom, Row};
use super::shape::{Shape, share};
use super::waste::Waste;

/// The least waste the row would have with the shape on it; none where it does not fit.
pub fn least_waste(
    row: &Row,
    gpus: &[GpuRoom],
    shares: &[u16],
    vram_mib: u32,
    shape: &Shape,
    waste: Option<&Waste>,
) -> Option<i64> {
    let one_or_whole = shape.gpus <= 1 || shape.is_whole();
    match waste {
        Some(waste) if one_or_whole => {
            let (least, _) = row.least_waste(gpus, shares, vram_mib, shape, waste)?;
            Some(least)
        }
        _ => {
            let chosen = self::gpus(row, gpus, shares, vram_mib, shape, waste)?;
            Some(cost(row, gpus, vram_mib, shape, waste, &chosen))
        }
    }
}

/// What it costs to have the shape on these GPUs: waste, or what is left over before anything was learnt.
pub fn cost(
    row: &Row,
    gpus: &[GpuRoom],
    vram_mib: u32,
    shape: &Shape,
    waste: Option<&Waste>,
    chosen: &[u16],
) -> i64 {
    match waste {
        Some(waste) => wasted(row, gpus, vram_mib, shape, waste, chosen),
        None => left_over(row, gpus, vram_mib, shape, chosen),
    }
}

/// What would be left beside the shape, of each GPU in thousandths of both sides; of whole GPUs how many would be left.
fn left_over(row: &Row, gpus: &[GpuRoom], vram_mib: u32, shape: &Shape, chosen: &[u16]) -> i64 {
    if shape.is_whole() {
        return i64::from(row.whole) - i64::from(shape.gpus);
    }
    let left = chosen.iter().map(|&gpu| {
        let after = gpus[usize::from(gpu)].without(shape);
        i64::from(after.permille) + i64::from(share(after.vram_mib, vram_mib))
    });
    left.sum::<i64>() / i64::from(shape.gpus.max(1))
}

/// The waste of the row with the shape on these GPUs.
fn wasted(row: &Row, gpus: &[GpuRoom], vram_mib: u32, shape: &Shape, waste: &Waste, chosen: &[u16]) -> i64 {
    let mut after = gpus.to_vec();
    for &gpu in chosen {
        after[usize::from(gpu)] = after[usize::from(gpu)].without(shape);
    }
    let mut with = row.clone();
    with.cpu_milli -= shape.cpu_milli;
    let mut shares = vec![0; after.len()];
    with.reckon(&after, &mut shares, vram_mib, Some(waste));
    with.waste
}

/// The GPUs that add the least waste; of whole ones the first, of several slices the tightest.
pub fn gpus(
    row: &Row,
    gpus: &[GpuRoom],
    shares: &[u16],
    vram_mib: u32,
    shape: &Shape,
    waste: Option<&Waste>,
) -> Option<Vec<u16>> {
    let index = |at: usize| u16::try_from(at).expect("INVARIANT: a node has at most 1,024 GPUs");
    if shape.gpus == 0 {
        return Some(Vec::new());
    }
    if shape.is_whole() {
        let whole = (0..gpus.len()).filter(|&at| gpus[at].is_whole(vram_mib));
        let taken: Vec<u16> = whole.take(shape.gpus.into()).map(index).collect();
        return (taken.len() == usize::from(shape.gpus)).then_some(taken);
    }
    if let (1, Some(waste)) = (shape.gpus, waste) {
        let (_, at) = row.least_waste(gpus, shares, vram_mib, shape, waste)?;
        return Some(vec![index(at)]);
    }
    let mut fitting: Vec<usize> = (0..gpus.len()).filter(|&at| gpus[at].fits(shape)).collect();
    fitting.sort_by_key(|&at| shares[at]);
    fitting.truncate(shape.gpus.into());
    (fitting.len() == usize::from(shape.gpus)).then(|| fitting.into_iter().map(index).collect())
}
