//! What NVML measures beyond the first things: clocks, engines, repaired memory, and the device's own counters of its
//! units (GPM, NVML 12.0, Hopper and later).

use std::ffi::{c_char, c_double, c_uint, c_void};

use super::{Answer, Failure, Handle, Memory, Nvml, Status, Utilization};

pub type Sample = *mut c_void;

/// `nvmlMemory_v2_t`
#[repr(C)]
#[derive(Default)]
pub(super) struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

const MEMORY_2: c_uint = size_of::<Memory2>() as c_uint | 2 << 24;
const _: () = assert!(MEMORY_2 == 0x0200_0028);

/// `nvmlGpmSupport_t`
#[repr(C)]
pub(super) struct GpmSupport {
    version: c_uint,
    is_supported: c_uint,
}

/// `nvmlGpmMetric_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct GpmMetric {
    id: c_uint,
    status: Status,
    value: c_double,
    texts: [*const c_char; 3],
}

/// `NVML_GPM_METRIC_MAX` grows with the library, which looks no further than it is asked to.
const METRICS_MAX: usize = 512;

/// `nvmlGpmMetricsGet_t`
#[repr(C)]
pub(super) struct GpmMetrics {
    version: c_uint,
    count: c_uint,
    before: Sample,
    now: Sample,
    metrics: [GpmMetric; METRICS_MAX],
}

const _: () = assert!(size_of::<GpmMetric>() == 40);

/// Rows of memory that were replaced.
#[derive(Debug, Clone, Copy)]
pub struct Remapped {
    pub correctable: u32,
    pub uncorrectable: u32,
    pub failed: bool,
}

/// How a device's units worked between two looks, in thousandths of the time; and what went over its bus.
#[derive(Debug, Clone, Default)]
pub struct Active {
    pub graphics_permille: Option<u16>,
    pub tensor_permille: Option<u16>,
    pub memory_permille: Option<u16>,
    pub sent_bytes_s: Option<u64>,
    pub received_bytes_s: Option<u64>,
}

/// Two looks at the counters of one device, or of one part.
pub struct Looks {
    before: Sample,
    now: Sample,
    /// There was one.
    looked: bool,
}

impl Nvml {
    /// Of its multiprocessors.
    pub fn sm_clock_mhz(&self, of: Handle) -> Answer<u32> {
        const SM: c_uint = 1;
        self.number(|mhz| call!(self.clock(of, SM, mhz)))
    }

    pub fn memory_clock_mhz(&self, of: Handle) -> Answer<u32> {
        const MEMORY: c_uint = 2;
        self.number(|mhz| call!(self.clock(of, MEMORY, mhz)))
    }

    /// How much of the last moments its memory was read or written.
    pub fn memory_busy_percent(&self, of: Handle) -> Answer<u32> {
        let mut rates = Utilization::default();
        call!(self.utilization(of, &mut rates))?;
        Ok(rates.memory)
    }

    pub fn encoder_percent(&self, of: Handle) -> Answer<u32> {
        self.number(|percent| {
            let mut period_us = 0;
            call!(self.encoder(of, percent, &mut period_us))
        })
    }

    pub fn decoder_percent(&self, of: Handle) -> Answer<u32> {
        self.number(|percent| {
            let mut period_us = 0;
            call!(self.decoder(of, percent, &mut period_us))
        })
    }

    pub fn pcie_replays(&self, of: Handle) -> Answer<u32> {
        self.number(|count| call!(self.pcie_replays(of, count)))
    }

    pub fn remapped(&self, of: Handle) -> Answer<Remapped> {
        let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
        call!(self.remapped_rows(
            of,
            &mut correctable,
            &mut uncorrectable,
            &mut pending,
            &mut failed
        ))?;
        Ok(Remapped {
            correctable,
            uncorrectable,
            failed: failed != 0,
        })
    }

    /// What the driver keeps for itself; part of what `used_bytes` gives.
    pub fn reserved_bytes(&self, of: Handle) -> Answer<u64> {
        let mut memory = Memory2 {
            version: MEMORY_2,
            ..Memory2::default()
        };
        call!(self.memory_2(of, &mut memory))?;
        Ok(memory.reserved)
    }

    /// Total and used, of a device or a part.
    pub fn memory_of(&self, of: Handle) -> Answer<(u64, u64)> {
        let mut memory = Memory::default();
        call!(self.memory(of, &mut memory))?;
        Ok((memory.total, memory.used))
    }

    /// Begins to look at a device's own counters; refused by those that have none.
    pub fn looks(&self, of: Handle) -> Answer<Looks> {
        let mut support = GpmSupport {
            version: 1,
            is_supported: 0,
        };
        call!(self.gpm_support(of, &mut support))?;
        if support.is_supported == 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        let mut samples = [std::ptr::null_mut(); 2];
        for sample in &mut samples {
            call!(self.gpm_alloc(sample))?;
        }
        let [before, now] = samples;
        Ok(Looks {
            before,
            now,
            looked: false,
        })
    }

    /// What happened since the last look; nothing at the first.
    pub fn look(&self, of: Handle, part: Option<u32>, looks: &mut Looks) -> Answer<Active> {
        const GRAPHICS: c_uint = 1;
        const TENSOR: c_uint = 5;
        const MEMORY: c_uint = 10;
        const SENT: c_uint = 20;
        const RECEIVED: c_uint = 21;
        match part {
            None => call!(self.gpm_sample(of, looks.now))?,
            Some(instance) => call!(self.gpm_part_sample(of, instance, looks.now))?,
        }
        let two = std::mem::replace(&mut looks.looked, true);
        std::mem::swap(&mut looks.before, &mut looks.now);
        if !two {
            return Ok(Active::default());
        }
        let asked = [GRAPHICS, TENSOR, MEMORY, SENT, RECEIVED];
        let mut metrics = Box::new(GpmMetrics {
            version: 1,
            count: asked.len() as c_uint,
            // They were swapped.
            before: looks.now,
            now: looks.before,
            metrics: [GpmMetric {
                id: 0,
                status: 0,
                value: 0.0,
                texts: [std::ptr::null(); 3],
            }; METRICS_MAX],
        });
        for (place, id) in metrics.metrics.iter_mut().zip(asked) {
            place.id = id;
        }
        call!(self.gpm_metrics(&mut *metrics))?;
        let told = |place: usize| {
            let metric = metrics.metrics[place];
            (metric.status == 0 && metric.value.is_finite() && metric.value >= 0.0).then_some(metric.value)
        };
        let permille = |place| told(place).map(|percent| (percent * 10.0).round().min(1000.0) as u16);
        // Told in MiB a second.
        let bytes = |place| told(place).map(|mib| (mib * 1_048_576.0) as u64);
        Ok(Active {
            graphics_permille: permille(0),
            tensor_permille: permille(1),
            memory_permille: permille(2),
            sent_bytes_s: bytes(3),
            received_bytes_s: bytes(4),
        })
    }
}
