//! Meters: the countable things a quota limits and a job uses. A limit and a usage are the same shape, so
//! "fits" is one comparison per meter, the same at every scope of the tree.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::Counted;

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

/// Which part of the whole is counted: everything, one GPU class, one SKU, or one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    All,
    Class(Arc<str>),
    Sku(Arc<str>),
    Kind(Counted),
}

impl Of {
    /// Kinds are counted by what people limit them by, so that jobs cost no more to admit than they must.
    pub(crate) fn counts(&self, resource: Resource) -> bool {
        let by_kind = matches!(resource, Resource::Jobs | Resource::GpuMilli | Resource::VramMib);
        by_kind || !matches!(self, Of::Kind(_))
    }

    pub(crate) fn parse(text: &str) -> Result<Of, String> {
        if let Some(kind) = text.strip_prefix("kind:") {
            return kind.parse().map(Of::Kind);
        }
        let (of, name): (fn(Arc<str>) -> Of, &str) =
            match (text.strip_prefix("class:"), text.strip_prefix("sku:")) {
                (Some(name), _) => (Of::Class, name),
                (_, Some(name)) => (Of::Sku, name),
                _ => return Err(format!("'{text}' is neither class:NAME, sku:NAME nor kind:NAME")),
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
            Of::Kind(kind) => write!(f, "kind:{kind}"),
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
            Some((resource, of)) => {
                let (resource, of): (Resource, Of) = (resource.parse()?, Of::parse(of)?);
                if !of.counts(resource) {
                    return Err("kinds are counted by jobs, gpu_milli and vram_mib".into());
                }
                Ok(Meter { resource, of })
            }
        }
    }
}

/// As it is displayed; a job's amounts are a dozen of them, in its event and in every snapshot, so the common ones are put
/// together without a formatter.
impl Serialize for Meter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (of, name) = match &self.of {
            Of::All => return serializer.serialize_str(self.resource.as_str()),
            Of::Class(name) => ("@class:", name),
            Of::Sku(name) => ("@sku:", name),
            Of::Kind(_) => return serializer.collect_str(self),
        };
        serializer.serialize_str(&[self.resource.as_str(), of, &**name].concat())
    }
}

impl<'de> Deserialize<'de> for Meter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Amounts by meter: a quota's limits (absent means unlimited) or a scope's use (absent means none).
///
/// A sorted list, since a request has a dozen meters and meets those of every scope above it; copies share it until
/// one of them changes, since a job's amounts are in its event and in every copy of the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(Arc<Vec<(Meter, u64)>>);

impl Amounts {
    pub fn get(&self, meter: &Meter) -> Option<u64> {
        let at = self.find(meter).ok()?;
        Some(self.0[at].1)
    }

    /// Says how much of a meter, whatever was said before.
    pub fn set(&mut self, meter: Meter, amount: u64) {
        let found = self.find(&meter);
        let rows = Arc::make_mut(&mut self.0);
        match found {
            Ok(at) => rows[at].1 = amount,
            Err(at) => rows.insert(at, (meter, amount)),
        }
    }

    /// Says nothing of a meter any more.
    pub fn unset(&mut self, meter: &Meter) {
        if let Ok(at) = self.find(meter) {
            Arc::make_mut(&mut self.0).remove(at);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Meter, u64)> {
        self.0.iter().map(|(meter, amount)| (meter, *amount))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, meter: &Meter) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(meter))
    }

    pub fn add(&mut self, other: &Amounts) {
        let rows = Arc::make_mut(&mut self.0);
        let mut at = 0;
        for (meter, amount) in other.0.iter() {
            at += seek(&rows[at..], meter);
            match rows.get_mut(at) {
                Some((known, sum)) if known == meter => *sum += amount,
                _ => rows.insert(at, (meter.clone(), *amount)),
            }
            at += 1;
        }
    }

    /// Takes away what was added before.
    pub fn remove(&mut self, other: &Amounts) {
        let rows = Arc::make_mut(&mut self.0);
        let (mut at, mut spent) = (0, false);
        for (meter, amount) in other.0.iter() {
            at += seek(&rows[at..], meter);
            let Some((_, left)) = rows.get_mut(at).filter(|(known, _)| known == meter) else {
                panic!("INVARIANT: {meter} given back but never taken");
            };
            *left = left
                .checked_sub(*amount)
                .expect("INVARIANT: no more is given back than was taken");
            spent |= *left == 0;
            at += 1;
        }
        if spent {
            rows.retain(|(_, left)| *left > 0);
        }
    }

    /// What of this goes beyond `other`.
    pub fn beyond(&self, other: &Amounts) -> Amounts {
        let more = self.iter().filter_map(|(meter, amount)| {
            let more = amount.saturating_sub(other.get(meter).unwrap_or(0));
            (more > 0).then(|| (meter.clone(), more))
        });
        more.collect()
    }

    /// The first meter on which `asked` on top of `used` passes this limit.
    pub fn first_exceeded(&self, used: &Amounts, asked: &Amounts) -> Option<Exceeded> {
        self.iter().find_map(|(meter, limit)| {
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

/// How many rows stand before the meter. Whoever counts the same things finds it at once.
fn seek(rows: &[(Meter, u64)], meter: &Meter) -> usize {
    match rows.first() {
        Some((first, _)) if first != meter => rows.partition_point(|(known, _)| known < meter),
        _ => 0,
    }
}

/// What is said last of a meter holds.
impl FromIterator<(Meter, u64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Meter, u64)>>(rows: I) -> Amounts {
        let mut rows: Vec<(Meter, u64)> = rows.into_iter().collect();
        if !rows.is_sorted_by(|one, next| one.0 < next.0) {
            let by_meter: BTreeMap<Meter, u64> = rows.into_iter().collect();
            rows = by_meter.into_iter().collect();
        }
        Amounts(Arc::new(rows))
    }
}

impl<const N: usize> From<[(Meter, u64); N]> for Amounts {
    fn from(rows: [(Meter, u64); N]) -> Amounts {
        rows.into_iter().collect()
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = BTreeMap::<Meter, u64>::deserialize(deserializer)?;
        Ok(rows.into_iter().collect())
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
    use proptest::prelude::*;

    #[test]
    fn meters_read_as_they_are_written() {
        for text in [
            "gpu_milli",
            "vram_mib@class:H100",
            "jobs@sku:large",
            "jobs@kind:inference:13b",
            "gpu_milli@kind:rendering",
        ] {
            assert_eq!(text.parse::<Meter>().unwrap().to_string(), text);
        }
        for bad in [
            "gpus",
            "vram_mib@H100",
            "vram_mib@class:",
            "vram_mib@class:a b",
            "jobs@kind:batch",
            "slices@kind:video",
            "jobs@kind:",
            "@",
            "",
        ] {
            assert!(bad.parse::<Meter>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ten_tenths_fill_exactly_one_gpu() {
        let gpu = Meter::all(Resource::GpuMilli);
        let limit = Amounts::from([(gpu.clone(), 1000)]);
        let tenth = Amounts::from([(gpu, 100)]);
        let mut used = Amounts::default();
        for _ in 0..10 {
            assert_eq!(limit.first_exceeded(&used, &tenth), None);
            used.add(&tenth);
        }
        assert!(limit.first_exceeded(&used, &tenth).is_some());
    }

    proptest! {
        #[test]
        fn amounts_add_up_as_in_a_map(ops in proptest::collection::vec((0usize..3, proptest::collection::vec((0usize..7, 0usize..4, 1u64..9), 0..6)), 0..20)) {
            let meter = |resource: usize, of: usize| Meter {
                resource: Resource::ALL[resource],
                of: [Of::All, Of::Class("a".into()), Of::Class("b".into()), Of::Sku("a".into())][of].clone(),
            };
            let (mut ours, mut plain) = (Amounts::default(), BTreeMap::<Meter, u64>::new());
            let mut given: Vec<Amounts> = Vec::new();
            for (what, rows) in ops {
                let other: Amounts = rows.iter().map(|(r, of, n)| (meter(*r, *of), *n)).collect();
                if what == 0 && !given.is_empty() {
                    let back = given.swap_remove(rows.len() % given.len());
                    ours.remove(&back);
                    for (meter, amount) in back.iter() {
                        *plain.get_mut(meter).expect("was added") -= amount;
                    }
                    plain.retain(|_, left| *left > 0);
                } else {
                    ours.add(&other);
                    for (meter, amount) in other.iter() {
                        *plain.entry(meter.clone()).or_default() += amount;
                    }
                    given.push(other);
                }
                prop_assert_eq!(&ours, &plain.clone().into_iter().collect::<Amounts>());
                for (r, of, _) in rows {
                    prop_assert_eq!(ours.get(&meter(r, of)), plain.get(&meter(r, of)).copied());
                }
            }
        }
    }
}
