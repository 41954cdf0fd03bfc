//! Typed ids. Each is 64 bits, 42 of milliseconds and 22 of sequence, so ids sort by creation; printed as a
//! prefix and 13 characters of Crockford base32. They are made by the controller and arrive inside commands.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const DIGITS: usize = 13;

/// Text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {expected} id")]
pub struct BadId {
    pub expected: &'static str,
}

/// The text of an id, `N` bytes long: a prefix and the digits. Ids are most of what is written down, so it takes no
/// formatter to make one.
fn encode<const N: usize>(prefix: &str, value: u64) -> [u8; N] {
    let mut text = [0; N];
    let (front, digits) = text.split_at_mut(N - DIGITS);
    front.copy_from_slice(prefix.as_bytes());
    for (i, digit) in digits.iter_mut().enumerate() {
        let shift = 5 * (DIGITS - 1 - i);
        *digit = ALPHABET[(value >> shift) as usize & 31];
    }
    text
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("prefixes and digits are ASCII")
}

fn decode(text: &str) -> Option<u64> {
    if text.len() != DIGITS {
        return None;
    }
    let mut value: u128 = 0;
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|&letter| letter == byte)?;
        value = value << 5 | digit as u128;
    }
    u64::try_from(value).ok()
}

macro_rules! id {
    ($(#[$doc:meta] $name:ident $prefix:literal $expected:literal;)*) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(text(&encode::<{ $prefix.len() + DIGITS }>($prefix, self.0)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                text.strip_prefix($prefix).and_then(decode).map($name).ok_or(BadId { expected: $expected })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(text(&encode::<{ $prefix.len() + DIGITS }>($prefix, self.0)))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(IdVisitor::<$name>(std::marker::PhantomData, $expected))
            }
        }
    )*};
}

struct IdVisitor<T>(std::marker::PhantomData<T>, &'static str);

impl<T: FromStr<Err = BadId>> de::Visitor<'_> for IdVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id", self.1)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

id! {
    /// A company or team that consumes or offers capacity.
    TenantId "ten_" "a tenant";
    /// A business unit or customer of a tenant.
    SubscriberId "sub_" "a subscriber";
    /// A person or a service account.
    UserId "usr_" "a user";
    /// An API key.
    KeyId "key_" "a key";
    /// Work in the queue.
    JobId "job_" "a job";
    /// Slices given to a job for one attempt.
    AllocationId "alc_" "an allocation";
    /// A machine.
    NodeId "nod_" "a node";
    /// A device on a node.
    GpuId "gpu_" "a gpu";
    /// A reference into the erasable secret store.
    SecretId "sec_" "a secret";
    /// A one-time token with which a node joins.
    JoinTokenId "jtk_" "a join token";
    /// Somebody at a running job.
    SessionId "ses_" "a session";
    /// A scope's own space for files.
    VolumeId "vol_" "a volume";
    /// Capacity held for windows in time.
    BookingId "bkg_" "a booking";
    /// Capacity for sale.
    OfferId "off_" "an offer";
    /// A wish to buy that waits.
    BidId "bid_" "a bid";
    /// Quota of one tenant that is another's for a time.
    LeaseId "lse_" "a lease";
    /// What somebody owes for a span of time.
    InvoiceId "inv_" "an invoice";
    /// A credit, a refund or a correction.
    AdjustmentId "adj_" "an adjustment";
    /// A receiver outside that is told what happens.
    WebhookId "whk_" "a webhook";
}

/// The block of fresh ids that came with a command, handed out in order.
#[derive(Debug, Clone)]
pub struct Ids {
    next: u64,
}

impl Ids {
    /// Ids set apart for one command: the controller never gives the same block twice.
    pub const BLOCK: u64 = 1 << 12;

    pub fn starting_at(first: u64) -> Self {
        Ids { next: first }
    }

    pub fn take(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_sort_like_their_numbers() {
        let numbers = [0, 1, 31, 32, 1 << 22, u64::MAX - 1, u64::MAX];
        let texts: Vec<String> = numbers.iter().map(|&n| JobId(n).to_string()).collect();
        for (number, text) in numbers.iter().zip(&texts) {
            assert_eq!(text.parse::<JobId>(), Ok(JobId(*number)));
        }
        assert!(texts.is_sorted());
    }

    #[test]
    fn foreign_shapes_are_not_ids() {
        let job = JobId(77).to_string();
        assert!(job.parse::<TenantId>().is_err());
        assert!(job.to_uppercase().parse::<JobId>().is_err());
        for bad in [
            "",
            "job_",
            "job_../../../etc",
            "job_zzzzzzzzzzzzz",
            "job_0000000000il0",
            "job_00000000000000",
        ] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }
}
