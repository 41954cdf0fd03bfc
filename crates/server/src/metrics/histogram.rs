//! How often something was how large.

/// Counts by size, in steps fixed when it is made.
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: what is larger than the last.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    pub fn add(&mut self, size: f64) {
        let step = self.bounds.partition_point(|&bound| bound < size);
        self.counts[step] += 1;
        self.sum += size;
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many were no larger than each bound.
    pub fn up_to(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut so_far = 0;
        self.bounds.iter().zip(&self.counts).map(move |(&bound, count)| {
            so_far += count;
            (bound, so_far)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_in_its_step_and_all_above() {
        let mut sizes = Histogram::new(&[1.0, 10.0]);
        for size in [0.5, 1.0, 1.5, 100.0] {
            sizes.add(size);
        }
        assert_eq!(sizes.up_to().collect::<Vec<_>>(), [(1.0, 2), (10.0, 3)]);
        assert_eq!((sizes.count(), sizes.sum()), (4, 103.0));
    }
}
