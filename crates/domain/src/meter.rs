//! Meters: the countable things a quota limits and a job uses. A limit and a usage are the same shape, so
//! "fits" is one comparison per meter, the same at every scope of the tree.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Compute share in thousandths of a GPU: a whole GPU is 1000, a 30 % slice 300.
    GpuMilli,
    /// How many slices (parts of GPUs, or whole ones) at once.
    Slices,
    /// Device memory.
    VramMib,
    /// Thousandths of a CPU core.
    CpuMilli,
    /// Host memory.
    MemoryMib,
    /// Jobs at once.
    Jobs,
    /// Space of volumes, used or not.
    VolumeMib,
    /// GPUs booked for one moment, in thousandths; a limit on what is held at once, whenever that is.
    BookedMilli,
}

impl Resource {
    pub const ALL: [Resource; 8] = [
        Resource::GpuMilli,
        Resource::Slices,
        Resource::VramMib,
        Resource::CpuMilli,
        Resource::MemoryMib,
        Resource::Jobs,
        Resource::VolumeMib,
        Resource::BookedMilli,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Resource::GpuMilli => "gpu_milli",
            Resource::Slices => "slices",
            Resource::VramMib => "vram_mib",
            Resource::CpuMilli => "cpu_milli",
            Resource::MemoryMib => "memory_mib",
            Resource::Jobs => "jobs",
            Resource::VolumeMib => "volume_mib",
            Resource::BookedMilli => "booked_milli",
        }
    }
}

impl FromStr for Resource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Resource::ALL.into_iter().find(|r| r.as_str() == text).ok_or_else(|| {
            format!("unknown resource '{text}', known are gpu_milli, slices, vram_mib, cpu_milli, memory_mib, jobs, volume_mib, booked_milli")
        })
    }
}

/// Which part of the whole is counted: everything, one GPU class, or one SKU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    All,
    Class(Box<str>),
    Sku(Box<str>),
}

impl Of {
    pub(crate) fn parse(text: &str) -> Result<Of, String> {
        let (of, name): (fn(Box<str>) -> Of, &str) =
            match (text.strip_prefix("class:"), text.strip_prefix("sku:")) {
                (Some(name), _) => (Of::Class, name),
                (_, Some(name)) => (Of::Sku, name),
                _ => return Err(format!("'{text}' is neither class:NAME nor sku:NAME")),
            };
        crate::name::check(name, "").map_err(|refusal| refusal.sentence.into_owned())?;
        Ok(of(name.into()))
    }
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of::All => Ok(()),
            Of::Class(name) => write!(f, "class:{name}"),
            Of::Sku(name) => write!(f, "sku:{name}"),
        }
    }
}

/// One countable: a resource, over all devices or of one class or SKU. Written `vram_mib` or `vram_mib@class:H100`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meter {
    pub resource: Resource,
    pub of: Of,
}

impl Meter {
    pub fn all(resource: Resource) -> Meter {
        Meter {
            resource,
            of: Of::All,
        }
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource.as_str())?;
        if self.of != Of::All {
            write!(f, "@{}", self.of)?;
        }
        Ok(())
    }
}

impl FromStr for Meter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('@') {
            None => Ok(Meter::all(text.parse()?)),
            Some((resource, of)) => Ok(Meter {
                resource: resource.parse()?,
                of: Of::parse(of)?,
            }),
        }
    }
}

impl Serialize for Meter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Meter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Amounts by meter: a quota's limits (absent means unlimited) or a scope's use (absent means none).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amounts(pub BTreeMap<Meter, u64>);

impl Amounts {
    pub fn get(&self, meter: &Meter) -> Option<u64> {
        self.0.get(meter).copied()
    }

    pub fn add(&mut self, other: &Amounts) {
        for (meter, amount) in &other.0 {
            *self.0.entry(meter.clone()).or_default() += amount;
        }
    }

    /// Takes away what was added before.
    pub fn remove(&mut self, other: &Amounts) {
        for (meter, amount) in &other.0 {
            let Some(left) = self.0.get_mut(meter) else {
                panic!("INVARIANT: {meter} given back but never taken");
            };
            *left = left
                .checked_sub(*amount)
                .expect("INVARIANT: no more is given back than was taken");
            if *left == 0 {
                self.0.remove(meter);
            }
        }
    }

    /// What of this goes beyond `other`.
    pub fn beyond(&self, other: &Amounts) -> Amounts {
        let more = self.0.iter().filter_map(|(meter, amount)| {
            let more = amount.saturating_sub(other.get(meter).unwrap_or(0));
            (more > 0).then(|| (meter.clone(), more))
        });
        Amounts(more.collect())
    }

    /// The first meter on which `asked` on top of `used` passes this limit.
    pub fn first_exceeded(&self, used: &Amounts, asked: &Amounts) -> Option<Exceeded> {
        self.0.iter().find_map(|(meter, &limit)| {
            let asked = asked.get(meter).filter(|&n| n > 0)?;
            let used = used.get(meter).unwrap_or(0);
            (used.saturating_add(asked) > limit).then(|| Exceeded {
                meter: meter.clone(),
                limit,
                used,
                asked,
            })
        })
    }
}

/// By how much a request passes a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    pub meter: Meter,
    pub limit: u64,
    pub used: u64,
    pub asked: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_read_as_they_are_written() {
        for text in ["gpu_milli", "vram_mib@class:H100", "jobs@sku:large"] {
            assert_eq!(text.parse::<Meter>().unwrap().to_string(), text);
        }
        for bad in [
            "gpus",
            "vram_mib@H100",
            "vram_mib@class:",
            "vram_mib@class:a b",
            "@",
            "",
        ] {
            assert!(bad.parse::<Meter>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ten_tenths_fill_exactly_one_gpu() {
        let gpu = Meter::all(Resource::GpuMilli);
        let limit = Amounts([(gpu.clone(), 1000)].into());
        let tenth = Amounts([(gpu, 100)].into());
        let mut used = Amounts::default();
        for _ in 0..10 {
            assert_eq!(limit.first_exceeded(&used, &tenth), None);
            used.add(&tenth);
        }
        assert!(limit.first_exceeded(&used, &tenth).is_some());
    }
}
