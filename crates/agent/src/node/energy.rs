//! Who is on each device, for its energy to be shared out among them (`telemetry/energy`).

use tenure_limits::Counter;

use super::Node;
use crate::telemetry::energy::{OnDevices, Present};

impl Node {
    /// Who has some of each device: by its page, or given whole without one.
    pub(super) fn on_devices(&self) -> OnDevices {
        let (found, given) = (self.found(), self.shares.given());
        let mut all = OnDevices::new();
        for page in self.shares.read() {
            // By what was given: a page may say anything of who is there.
            let here = given
                .iter()
                .filter(|slice| slice.uuid == page.uuid && slice.limit_bytes > 0);
            let present = here.map(|slice| Present {
                allocation: slice.allocation,
                busy_ns: page
                    .snapshot
                    .slice(slice.allocation.0)
                    .map_or(0, |reading| reading.counter(Counter::BusyNs)),
                weight_permille: slice.weight_per_mille.into(),
            });
            let present = present.collect();
            all.insert(page.uuid, present);
        }
        for device in found.devices.iter().filter(|device| device.opencl.is_none()) {
            let uuid = &device.facts.uuid;
            let here = self.scrubs.given(uuid).into_iter().filter(|&id| self.lives(id));
            let present = here.map(|allocation| Present {
                allocation,
                busy_ns: 0,
                weight_permille: 1000,
            });
            all.insert(uuid.clone(), present.collect());
        }
        all
    }
}
