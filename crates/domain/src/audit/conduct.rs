//! Conduct: what one allocation did at the boundary of its devices, counted by its node and signed with the node's key.
//!
//! Counts and hashes only: no contents, no names, no arguments. Deliberately absent: signing and checking signatures
//! (`api::seal`), for that is no decision; and judging (`anomaly`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::{AllocationId, JobId};
use crate::refusal::Refusal;
use crate::tenancy::key::Digest;

/// Kernels told apart in one record; launches of others are counted together.
pub const MAX_KERNELS: usize = 32;
/// Denied system calls told apart in one record; others are counted together.
pub const MAX_DENIED_CALLS: usize = 32;

/// What one allocation did. All counts are of the whole run, over all its devices.
///
/// INVARIANT: a signature covers this as JSON, its fields in this order. So a field is only ever added at the end, and
/// left out of the JSON while it has its default: what was signed before reads and writes as it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Conduct {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub allocation: AllocationId,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub job: JobId,
    pub ran_ms: u64,
    /// Devices it was given, and those a process of it opened.
    pub devices: u32,
    pub devices_opened: u32,
    /// How often a process opened a device.
    pub opens: u64,
    /// Allocations of device memory granted, their bytes, and the most it had on one device at once.
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    /// Commands let through to devices.
    pub launches: u64,
    /// Kernels among them; the most launched first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelUse>,
    /// Launches of kernels that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_launches: u64,
    /// Bytes moved to devices, and from them.
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub busy_ms: u64,
    pub throttled_ms: u64,
    pub waited_ms: u64,
    /// Allocations of device memory refused.
    pub refusals: u64,
    /// Calls denied because they would pass the guard by.
    pub denials: u64,
    /// System calls denied, by number; none where the node cannot count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_calls: Option<Vec<DeniedCall>>,
    /// System calls denied that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_denied_calls: u64,
    /// Messages to its worker that its own library would never send.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub malformed: u64,
    /// What its node saw done to the memory its limits stand in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tampering: BTreeSet<Tampering>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A kernel, by the hash of its program and its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelHash(pub u64);

impl fmt::Display for KernelHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for KernelHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KernelHash {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u64::from_str_radix(text, 16)
            .ok()
            .filter(|_| plain)
            .map(KernelHash)
            .ok_or_else(|| "a kernel's hash is 16 hexadecimal digits".to_owned())
    }
}

impl Serialize for KernelHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KernelHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// How often a kernel was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KernelUse {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub hash: KernelHash,
    pub launches: u64,
}

/// How often a system call was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeniedCall {
    /// Its number on the node's architecture.
    pub call: u32,
    pub times: u64,
}

/// Done to the memory that a guarded job shares with its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tampering {
    /// The page of its device is no page any more.
    PageDamaged,
    /// Its limits are not those its node set.
    LimitsChanged,
    /// Counts that only grow went back.
    CountsWentBack,
    /// Its place on the page is gone while it runs.
    PlaceGone,
}

impl Tampering {
    pub fn as_str(self) -> &'static str {
        match self {
            Tampering::PageDamaged => "page_damaged",
            Tampering::LimitsChanged => "limits_changed",
            Tampering::CountsWentBack => "counts_went_back",
            Tampering::PlaceGone => "place_gone",
        }
    }
}

impl Conduct {
    pub fn new(allocation: AllocationId, job: JobId) -> Conduct {
        Conduct {
            allocation,
            job,
            ran_ms: 0,
            devices: 0,
            devices_opened: 0,
            opens: 0,
            allocations: 0,
            allocated_bytes: 0,
            peak_bytes: 0,
            launches: 0,
            kernels: Vec::new(),
            other_launches: 0,
            bytes_in: 0,
            bytes_out: 0,
            busy_ms: 0,
            throttled_ms: 0,
            waited_ms: 0,
            refusals: 0,
            denials: 0,
            denied_calls: None,
            other_denied_calls: 0,
            malformed: 0,
            tampering: BTreeSet::new(),
        }
    }

    /// Adds what another device, or another table of the same, says of kernels.
    pub fn add_kernels(&mut self, more: impl IntoIterator<Item = KernelUse>) {
        for used in more.into_iter().filter(|used| used.launches > 0) {
            match self.kernels.iter_mut().find(|known| known.hash == used.hash) {
                Some(known) => known.launches = known.launches.saturating_add(used.launches),
                None => self.kernels.push(used),
            }
        }
        self.kernels
            .sort_by(|a, b| b.launches.cmp(&a.launches).then(a.hash.cmp(&b.hash)));
        for left_out in self.kernels.drain(MAX_KERNELS.min(self.kernels.len())..) {
            self.other_launches = self.other_launches.saturating_add(left_out.launches);
        }
    }

    /// Takes the counts of denied system calls, the most frequent first.
    pub fn set_denied_calls(&mut self, mut calls: Vec<DeniedCall>) {
        calls.retain(|denied| denied.times > 0);
        calls.sort_by(|a, b| b.times.cmp(&a.times).then(a.call.cmp(&b.call)));
        for left_out in calls.drain(MAX_DENIED_CALLS.min(calls.len())..) {
            self.other_denied_calls = self.other_denied_calls.saturating_add(left_out.times);
        }
        self.denied_calls = Some(calls);
    }

    /// Different system calls that were denied; those not listed count as one.
    pub fn different_denied_calls(&self) -> usize {
        let listed = self.denied_calls.as_ref().map_or(0, Vec::len);
        listed + usize::from(self.other_denied_calls > 0)
    }

    /// Whether it is as small and as orderly as a node's record is.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let no = |field: &'static str, why: &'static str| Err(Refusal::invalid(field, why));
        if self.kernels.len() > MAX_KERNELS {
            return no("/conduct/kernels", "more kernels than a record lists");
        }
        let hashes: BTreeSet<KernelHash> = self.kernels.iter().map(|used| used.hash).collect();
        if hashes.len() < self.kernels.len() {
            return no("/conduct/kernels", "a kernel is listed twice");
        }
        let denied = self.denied_calls.as_deref().unwrap_or_default();
        if denied.len() > MAX_DENIED_CALLS {
            return no("/conduct/denied_calls", "more system calls than a record lists");
        }
        let numbers: BTreeSet<u32> = denied.iter().map(|denied| denied.call).collect();
        if numbers.len() < denied.len() {
            return no("/conduct/denied_calls", "a system call is listed twice");
        }
        Ok(())
    }
}

/// Conduct and who vouches for it: checked against the node's keys before it is taken note of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignedConduct {
    pub conduct: Conduct,
    /// The SHA-256 of the public key, by which the platform knows its node.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub key: Digest,
    /// The public key as a certificate holds it (SubjectPublicKeyInfo), and the signature, in hexadecimal.
    pub public_key: String,
    pub signature: String,
}

impl SignedConduct {
    /// No text of it is longer: keys and signatures of P-256 are shorter still.
    pub const MAX_TEXT: usize = 512;

    /// What the node's key signs.
    pub fn message(conduct: &Conduct) -> Vec<u8> {
        let mut message = b"tenure-conduct-1\n".to_vec();
        // INVARIANT: plain integers, texts and lists always encode.
        message.extend(serde_json::to_vec(conduct).unwrap_or_default());
        message
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.conduct.check()?;
        for (field, text) in [("/public_key", &self.public_key), ("/signature", &self.signature)] {
            let plain = |byte: u8| byte.is_ascii_hexdigit();
            if text.len() > SignedConduct::MAX_TEXT || !text.bytes().all(plain) {
                return Err(Refusal::invalid(
                    field,
                    "keys and signatures are short hexadecimal texts",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conduct() -> Conduct {
        Conduct::new(AllocationId(1), JobId(2))
    }

    #[test]
    fn lists_stay_short_and_nothing_is_lost() {
        let mut seen = conduct();
        let uses = |from: u64, count: u64| {
            (from..from + count).map(|n| KernelUse {
                hash: KernelHash(n),
                launches: n,
            })
        };
        seen.add_kernels(uses(1, 50));
        seen.add_kernels(uses(1, 50));
        let listed: u64 = seen.kernels.iter().map(|used| used.launches).sum();
        assert_eq!(seen.kernels.len(), MAX_KERNELS);
        assert_eq!(listed + seen.other_launches, 2 * (1..=50u64).sum::<u64>());
        seen.set_denied_calls((0..40).map(|call| DeniedCall { call, times: 1 }).collect());
        assert_eq!(
            (seen.other_denied_calls, seen.different_denied_calls()),
            (8, MAX_DENIED_CALLS + 1)
        );
        assert!(seen.check().is_ok());
    }

    #[test]
    fn a_record_that_is_none_is_refused() {
        let mut twice = conduct();
        twice.kernels = vec![
            KernelUse {
                hash: KernelHash(7),
                launches: 1
            };
            2
        ];
        assert!(twice.check().is_err());
        let mut long = conduct();
        long.denied_calls = Some((0..99).map(|call| DeniedCall { call, times: 1 }).collect());
        assert!(long.check().is_err());
    }

    #[test]
    fn a_record_without_news_is_written_as_ever() {
        let text = serde_json::to_string(&conduct()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"allocation":"alc_0000000000001","job":"job_0000000000002","ran_ms":0,"devices":0,"#,
                r#""devices_opened":0,"opens":0,"allocations":0,"allocated_bytes":0,"peak_bytes":0,"launches":0,"#,
                r#""bytes_in":0,"bytes_out":0,"busy_ms":0,"throttled_ms":0,"waited_ms":0,"refusals":0,"denials":0}"#
            )
        );
        assert_eq!(serde_json::from_str::<Conduct>(&text).unwrap(), conduct());
        assert!("00000000000000FF".parse::<KernelHash>().is_err());
        assert!("+000000000000001".parse::<KernelHash>().is_err());
    }
}
