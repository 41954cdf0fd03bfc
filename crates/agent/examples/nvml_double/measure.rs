//! What the double measures of its devices' clocks and units.

use super::*;

/// A look at a device's counters: whose.
type Look = *mut Handle;

#[repr(C)]
pub struct Support {
    version: c_uint,
    is_supported: c_uint,
}

#[repr(C)]
pub struct Metric {
    id: c_uint,
    status: Status,
    value: f64,
    texts: [*const c_char; 3],
}

/// With as many metrics behind it as it says.
#[repr(C)]
pub struct Metrics {
    version: c_uint,
    count: c_uint,
    before: Look,
    now: Look,
}

exports! {
    nvmlDeviceGetClockInfo(of: Handle, kind: c_uint, mhz: *mut c_uint) {
        let gauges = gauges(of)?;
        let clock = match kind {
            1 => gauges.sm_clock_mhz,
            2 => gauges.memory_clock_mhz,
            _ => return Err(INVALID_ARGUMENT),
        };
        mhz.write(clock.ok_or(NOT_SUPPORTED)?);
        Ok(())
    }
    nvmlGpmQueryDeviceSupport(of: Handle, support: *mut Support) {
        let (_, gpu) = device(of)?;
        if (*support).version != 1 {
            return Err(INVALID_ARGUMENT);
        }
        (*support).is_supported = (gpu.model().capability.0 >= 9).into();
        Ok(())
    }
    nvmlGpmSampleAlloc(look: *mut Look) {
        look.write(Box::into_raw(Box::new(std::ptr::null_mut())));
        Ok(())
    }
    nvmlGpmSampleGet(of: Handle, look: Look) {
        device(of)?;
        look.write(of);
        Ok(())
    }
    nvmlGpmMigSampleGet(of: Handle, instance: c_uint, look: Look) {
        if !device(of)?.1.mig || instance == 0 {
            return Err(INVALID_ARGUMENT);
        }
        look.write(of);
        Ok(())
    }
    nvmlGpmMetricsGet(metrics: *mut Metrics) {
        if (*metrics).version != 1 || *(*metrics).before != *(*metrics).now {
            return Err(INVALID_ARGUMENT);
        }
        let gauges = gauges(*(*metrics).now)?;
        let first = metrics.add(1).cast::<Metric>();
        for place in 0..(*metrics).count as usize {
            let metric = &mut *first.add(place);
            let value = match metric.id {
                1 => gauges.graphics_percent,
                5 => gauges.tensor_percent,
                _ => None,
            };
            metric.status = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
            metric.value = value.unwrap_or(f64::NAN);
        }
        Ok(())
    }
}
