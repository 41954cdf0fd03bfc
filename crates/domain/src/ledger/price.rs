//! Prices by GPU class. A price is fixed for a job when it is admitted; a later change never touches it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::money::{Currency, Micros};
use crate::refusal::Refusal;
use crate::workload::spec::Demand;

/// The largest price anybody may set: a billion an hour.
pub(super) const MAX_PRICE_MICROS: i64 = 1_000_000_000_000_000;

/// Hourly prices in micros of the platform's currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClassPrice {
    /// For a whole GPU of the class; a slice pays its compute share.
    pub gpu_hour_micros: i64,
    /// For each GiB of VRAM on top.
    #[serde(default)]
    pub vram_gib_hour_micros: i64,
}

impl ClassPrice {
    /// What so many thousandths of such GPUs cost by the hour, with this much VRAM in all.
    pub(super) fn hourly(&self, gpu_milli: u64, vram_mib: u64) -> Micros {
        let compute = Micros(self.gpu_hour_micros).times_milli(gpu_milli);
        let vram = Micros(self.vram_gib_hour_micros).times_milli(vram_mib.saturating_mul(1000) / 1024);
        Micros(compute.0.saturating_add(vram.0))
    }
}

/// The price list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prices {
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "EUR"))]
    pub currency: Currency,
    pub cpu_hour_micros: i64,
    pub memory_gib_hour_micros: i64,
    #[cfg_attr(feature = "schema", schema(value_type = std::collections::BTreeMap<String, ClassPrice>))]
    pub classes: BTreeMap<Box<str>, ClassPrice>,
    /// For GPUs of a class without a price of its own.
    pub other: ClassPrice,
}

impl Default for Prices {
    fn default() -> Self {
        Prices {
            currency: Currency::EUR,
            cpu_hour_micros: 20_000,
            memory_gib_hour_micros: 2_000,
            classes: BTreeMap::new(),
            other: ClassPrice {
                gpu_hour_micros: 1_000_000,
                vram_gib_hour_micros: 0,
            },
        }
    }
}

impl Prices {
    pub fn check(&self) -> Result<(), Refusal> {
        let fine = |price: i64| (0..=MAX_PRICE_MICROS).contains(&price);
        let class_fine = |price: &ClassPrice| fine(price.gpu_hour_micros) && fine(price.vram_gib_hour_micros);
        if !fine(self.cpu_hour_micros) {
            return Err(Refusal::invalid(
                "/cpu_hour_micros",
                "a price is zero or more, and at most a billion an hour",
            ));
        }
        if !fine(self.memory_gib_hour_micros) {
            return Err(Refusal::invalid(
                "/memory_gib_hour_micros",
                "a price is zero or more, and at most a billion an hour",
            ));
        }
        if !class_fine(&self.other) || !self.classes.values().all(class_fine) {
            return Err(Refusal::invalid(
                "/classes",
                "a price is zero or more, and at most a billion an hour",
            ));
        }
        for class in self.classes.keys() {
            crate::name::check(class, "/classes")?;
        }
        Ok(())
    }

    fn of_class(&self, class: &str) -> ClassPrice {
        self.classes.get(class).copied().unwrap_or(self.other)
    }

    /// What so many thousandths of GPUs of a class cost by the hour, with this much VRAM in all.
    pub fn hourly_of_gpus(&self, class: &str, gpu_milli: u64, vram_mib: u64) -> Micros {
        self.of_class(class).hourly(gpu_milli, vram_mib)
    }

    /// What a demand costs by the hour on GPUs of this class, with this much VRAM in all. Members cost the same, and
    /// the whole is a multiple of one, so that their charges add up to it.
    pub fn hourly(&self, demand: &Demand, class: Option<&str>, vram_mib: u64) -> Micros {
        let members = u64::from(demand.nodes.max(1));
        let one = self.hourly_of_one(demand, class, vram_mib / members);
        Micros(one.0.saturating_mul(members as i64))
    }

    /// The same of one member.
    pub(super) fn hourly_of_one(&self, demand: &Demand, class: Option<&str>, vram_mib: u64) -> Micros {
        let cpu = Micros(self.cpu_hour_micros).times_milli(demand.cpu_milli.into());
        let memory = Micros(self.memory_gib_hour_micros).times_milli(demand.memory_mib * 1000 / 1024);
        let gpu = class.filter(|_| demand.gpus > 0).map(|class| {
            let gpu_milli = u64::from(demand.gpus) * u64::from(demand.compute_permille);
            self.hourly_of_gpus(class, gpu_milli, vram_mib).0
        });
        Micros(cpu.0.saturating_add(memory.0).saturating_add(gpu.unwrap_or(0)))
    }
}
