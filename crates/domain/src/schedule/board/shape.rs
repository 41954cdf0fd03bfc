//! What is asked for, as placement tells asks apart.

use serde::{Deserialize, Serialize};

/// The kinds of GPU an ask takes, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Classes(pub u64);

impl Classes {
    pub const ANY: Classes = Classes(u64::MAX);
    /// How many kinds have a bit of their own; all others have the last bit together.
    pub const OWN: usize = 63;

    pub fn one(class: u8) -> Classes {
        Classes(1 << class.min(63))
    }

    pub fn meets(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }
}

/// A shape of request: asks of one shape are ranked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    /// GPUs, or slices of GPUs, of one node.
    pub gpus: u16,
    /// Thousandths of each; 1000 is the whole with all of its memory.
    pub permille: u16,
    /// Device memory of each slice.
    pub vram_mib: u32,
    pub classes: Classes,
    /// Rows of this region alone; zero for any.
    #[serde(default)]
    pub region: u16,
    /// Rows of this pool: nodes of one tenant, or with zero those of everybody.
    #[serde(default)]
    pub pool: u16,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            cpu_milli: 0,
            memory_mib: 0,
            gpus: 0,
            permille: 0,
            vram_mib: 0,
            classes: Classes::ANY,
            region: 0,
            pool: 0,
        }
    }
}

impl Shape {
    pub fn is_whole(&self) -> bool {
        self.permille == 1000
    }

    /// What one slice takes of a GPU with this much memory, in thousandths of its scarcer side.
    pub fn size(&self, vram_mib: u32) -> u16 {
        self.permille.max(share(self.vram_mib, vram_mib))
    }

    /// What the shape says of the use of GPUs, the same for asks that differ only in host memory or in where they go.
    #[must_use]
    pub fn of_gpus(&self) -> Shape {
        Shape {
            memory_mib: 0,
            region: 0,
            pool: 0,
            ..*self
        }
    }

    /// A smaller shape that many share: whatever fits this one fits that. Rankings of shapes seldom asked for are kept
    /// by it, so that their number stays small.
    #[must_use]
    pub fn coarse(&self) -> Shape {
        Shape {
            cpu_milli: floor(self.cpu_milli.into(), 1) as u32,
            memory_mib: floor(self.memory_mib, 1),
            gpus: floor(self.gpus.into(), 2) as u16,
            permille: match self.permille {
                1000 => 1000,
                part => floor(part.into(), 2) as u16,
            },
            vram_mib: floor(self.vram_mib.into(), 2) as u32,
            ..*self
        }
    }
}

/// The number with its first bits alone.
fn floor(number: u64, bits: u32) -> u64 {
    let drop = (u64::BITS - number.leading_zeros()).saturating_sub(bits);
    number >> drop << drop
}

/// A part of a GPU's memory in thousandths.
pub(super) fn share(part_mib: u32, whole_mib: u32) -> u16 {
    let permille = u64::from(part_mib) * 1000 / u64::from(whole_mib.max(1));
    u16::try_from(permille).unwrap_or(u16::MAX)
}

/// Counts of shapes as rows: a shape is no name that JSON could key by.
pub mod as_rows {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Shape;

    pub fn serialize<T: Serialize, S: Serializer>(
        counts: &BTreeMap<Shape, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(counts)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Shape, T>, D::Error> {
        let rows = Vec::<(Shape, T)>::deserialize(deserializer)?;
        Ok(rows.into_iter().collect())
    }
}
