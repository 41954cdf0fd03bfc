//! Seeded chance: xorshift64*, so that a failing run is replayed by its seed alone.

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        chance.next();
        chance
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            None
        } else {
            from.get(self.below(from.len() as u64) as usize)
        }
    }

    pub fn of<T: Copy>(&mut self, from: &[T]) -> T {
        *self.pick(from).expect("something to pick from")
    }
}

pub fn number_from_env(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

/// Says how to replay a run that failed.
pub struct Replay {
    pub seed: u64,
    pub step: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failed at step {} of seed {}; replay with TENURE_PROPERTY_SEED={}",
                self.step, self.seed, self.seed
            );
        }
    }
}
