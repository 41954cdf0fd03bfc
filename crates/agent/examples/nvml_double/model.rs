//! What the devices of the double are made of. Sizes and placements: NVIDIA's MIG user guide; product names and
//! memory: as NVML reports them on such cards.

pub struct Model {
    /// As a profile calls it.
    pub name: &'static str,
    pub product: &'static str,
    pub memory_mib: u64,
    pub capability: (i32, i32),
    pub mig: &'static [MigProfile],
}

pub struct MigProfile {
    pub name: &'static str,
    /// `NVML_GPU_INSTANCE_PROFILE_…`
    pub kind: u32,
    pub id: u32,
    pub slices: u32,
    pub count: u32,
    pub memory_mib: u64,
    pub starts: &'static [u32],
    pub size: u32,
}

const fn profile(
    name: &'static str,
    (kind, id): (u32, u32),
    slices: u32,
    count: u32,
    memory_mib: u64,
    starts: &'static [u32],
    size: u32,
) -> MigProfile {
    MigProfile {
        name,
        kind,
        id,
        slices,
        count,
        memory_mib,
        starts,
        size,
    }
}

const ANYWHERE: &[u32] = &[0, 1, 2, 3, 4, 5, 6];

pub const MODELS: &[Model] = &[
    Model {
        name: "A100-40GB",
        product: "NVIDIA A100-SXM4-40GB",
        memory_mib: 40_960,
        capability: (8, 0),
        mig: &[
            profile("1g.5gb", (0, 19), 1, 7, 4864, ANYWHERE, 1),
            profile("2g.10gb", (1, 14), 2, 3, 9856, &[0, 2, 4], 2),
            profile("3g.20gb", (2, 9), 3, 2, 19_968, &[0, 4], 4),
            profile("4g.20gb", (3, 5), 4, 1, 19_968, &[0], 4),
            profile("7g.40gb", (4, 0), 7, 1, 40_192, &[0], 8),
            profile("1g.5gb+me", (7, 20), 1, 1, 4864, ANYWHERE, 1),
            profile("1g.10gb", (9, 15), 1, 4, 9856, &[0, 2, 4, 6], 2),
        ],
    },
    Model {
        name: "A100-80GB",
        product: "NVIDIA A100-SXM4-80GB",
        memory_mib: 81_920,
        capability: (8, 0),
        mig: EIGHTY,
    },
    Model {
        name: "H100-80GB",
        product: "NVIDIA H100 80GB HBM3",
        memory_mib: 81_559,
        capability: (9, 0),
        mig: EIGHTY,
    },
    Model {
        name: "A30",
        product: "NVIDIA A30",
        memory_mib: 24_576,
        capability: (8, 0),
        mig: &[
            profile("1g.6gb", (0, 14), 1, 4, 5952, &[0, 1, 2, 3], 1),
            profile("2g.12gb", (1, 5), 2, 2, 11_968, &[0, 2], 2),
            profile("4g.24gb", (3, 0), 4, 1, 24_000, &[0], 4),
            profile("1g.6gb+me", (7, 21), 1, 1, 5952, &[0, 1, 2, 3], 1),
            profile("2g.12gb+me", (8, 6), 2, 1, 11_968, &[0, 2], 2),
        ],
    },
    Model {
        name: "L40S",
        product: "NVIDIA L40S",
        memory_mib: 46_068,
        capability: (8, 9),
        mig: &[],
    },
    Model {
        name: "T4",
        product: "Tesla T4",
        memory_mib: 15_360,
        capability: (7, 5),
        mig: &[],
    },
];

const EIGHTY: &[MigProfile] = &[
    profile("1g.10gb", (0, 19), 1, 7, 9856, ANYWHERE, 1),
    profile("2g.20gb", (1, 14), 2, 3, 19_968, &[0, 2, 4], 2),
    profile("3g.40gb", (2, 9), 3, 2, 40_192, &[0, 4], 4),
    profile("4g.40gb", (3, 5), 4, 1, 40_192, &[0], 4),
    profile("7g.80gb", (4, 0), 7, 1, 80_384, &[0], 8),
    profile("1g.10gb+me", (7, 20), 1, 1, 9856, ANYWHERE, 1),
    profile("1g.20gb", (9, 15), 1, 4, 19_968, &[0, 2, 4, 6], 2),
];
