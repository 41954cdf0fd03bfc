//! What is asked for, as placement tells asks apart.

/// The GPU classes an ask takes, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Classes(pub u64);

impl Classes {
    pub const ANY: Classes = Classes(u64::MAX);

    pub fn one(class: u8) -> Classes {
        Classes(1 << class.min(63))
    }

    pub fn meets(self, other: Classes) -> bool {
        self.0 & other.0 != 0
    }
}

/// A shape of request: asks of one shape are ranked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
}

impl Shape {
    pub fn is_whole(&self) -> bool {
        self.permille == 1000
    }

    /// What one slice takes of a GPU with this much memory, in thousandths of its scarcer side.
    pub fn size(&self, vram_mib: u32) -> u16 {
        self.permille.max(share(self.vram_mib, vram_mib))
    }
}

/// A part of a GPU's memory in thousandths.
pub(super) fn share(part_mib: u32, whole_mib: u32) -> u16 {
    let permille = u64::from(part_mib) * 1000 / u64::from(whole_mib.max(1));
    u16::try_from(permille).unwrap_or(u16::MAX)
}
