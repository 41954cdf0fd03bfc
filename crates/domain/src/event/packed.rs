//! How the charges of a metering event are written: as arrays, with each account named once.
//!
//! A node's report is the event there are most of, and spelled out an interval is four times as long. What is written is
//! hashed, kept for ever and read at every restart. Charges that are spelled out, as all were before, are read as ever;
//! whoever is told of events outside is told them spelled out.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::charge::{Charge, Resold};
use crate::id::{AllocationId, JobId};
use crate::ledger::account::{AccountId, Posting};
use crate::money::Micros;
use crate::tenancy::budget::Cost;
use crate::workload::usage::{Packed as PackedUsage, Usage};

/// Arrays with their fields in this order; one with others gets the next number.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packed {
    v: u32,
    accounts: Vec<AccountId>,
    rows: Vec<Row>,
}

/// A posting: from and to, by their places among the accounts, and how much.
#[derive(Serialize, Deserialize)]
struct Transfer(usize, usize, Micros);

#[derive(Serialize, Deserialize)]
struct Row(
    AllocationId,
    JobId,
    /// From and to, in milliseconds.
    u64,
    u64,
    /// What it costs: money, GPU time, frames.
    Micros,
    u64,
    u64,
    Transfer,
    Option<PackedUsage>,
    /// Crumb, swept, extra.
    u64,
    Micros,
    Micros,
    Option<Resale>,
);

#[derive(Serialize, Deserialize)]
struct Resale(
    Transfer,
    /// Crumb, swept, extra.
    u64,
    Micros,
    Micros,
    Option<Transfer>,
);

/// Accounts in the order they are met.
#[derive(Default)]
struct Accounts {
    each: Vec<AccountId>,
    places: BTreeMap<AccountId, usize>,
}

impl Accounts {
    fn place(&mut self, account: AccountId) -> usize {
        *self.places.entry(account).or_insert_with(|| {
            self.each.push(account);
            self.each.len() - 1
        })
    }

    fn transfer(&mut self, posting: &Posting) -> Transfer {
        Transfer(self.place(posting.from), self.place(posting.to), posting.amount)
    }

    fn row(&mut self, charge: &Charge) -> Row {
        Row(
            charge.allocation,
            charge.job,
            charge.from_ms,
            charge.to_ms,
            charge.cost.money,
            charge.cost.gpu_ms,
            charge.cost.frames,
            self.transfer(&charge.posting),
            charge.used.as_ref().map(Usage::packed),
            charge.crumb,
            charge.swept,
            charge.extra,
            charge.resale.as_deref().map(|resold| {
                Resale(
                    self.transfer(&resold.posting),
                    resold.crumb,
                    resold.swept,
                    resold.extra,
                    resold.fee.as_ref().map(|fee| self.transfer(fee)),
                )
            }),
        )
    }
}

pub(super) fn serialize<S: Serializer>(charges: &[Charge], serializer: S) -> Result<S::Ok, S::Error> {
    let mut accounts = Accounts::default();
    let rows = charges.iter().map(|charge| accounts.row(charge)).collect();
    let packed = Packed {
        v: VERSION,
        accounts: accounts.each,
        rows,
    };
    packed.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Charge>, D::Error> {
    deserializer.deserialize_any(Either)
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Vec<Charge>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("charges, packed or spelled out")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Vec<Charge>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<Charge>, A::Error> {
        let Packed { v, accounts, rows } = Packed::deserialize(MapAccessDeserializer::new(map))?;
        if v != VERSION {
            return Err(A::Error::custom(format_args!(
                "charges are packed in version {v}"
            )));
        }
        let unpacked = rows
            .into_iter()
            .map(|row| unpacked(&accounts, row))
            .collect::<Option<_>>();
        unpacked.ok_or_else(|| A::Error::custom("a charge names an account that is not there"))
    }
}

/// Nothing where an account is not there.
fn unpacked(accounts: &[AccountId], row: Row) -> Option<Charge> {
    let posting = |Transfer(from, to, amount): Transfer| {
        Some(Posting {
            from: *accounts.get(from)?,
            to: *accounts.get(to)?,
            amount,
        })
    };
    let Row(
        allocation,
        job,
        from_ms,
        to_ms,
        money,
        gpu_ms,
        frames,
        transfer,
        used,
        crumb,
        swept,
        extra,
        resale,
    ) = row;
    let resold = |Resale(transfer, crumb, swept, extra, fee): Resale| {
        let fee = match fee {
            Some(fee) => Some(posting(fee)?),
            None => None,
        };
        Some(Box::new(Resold {
            posting: posting(transfer)?,
            crumb,
            swept,
            extra,
            fee,
        }))
    };
    Some(Charge {
        allocation,
        job,
        from_ms,
        to_ms,
        cost: Cost {
            money,
            gpu_ms,
            frames,
        },
        posting: posting(transfer)?,
        used: used.map(Usage::unpacked),
        crumb,
        swept,
        extra,
        resale: match resale {
            Some(resale) => Some(resold(resale)?),
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::id::{NodeId, SubscriberId, TenantId};

    fn charge(number: u64) -> Charge {
        let posting = |from, to| Posting {
            from,
            to,
            amount: Micros(number as i64),
        };
        let tenant = TenantId(number % 3);
        let resold = |fee: bool| {
            Box::new(Resold {
                posting: posting(
                    AccountId::Subscriber(SubscriberId(number)),
                    AccountId::Resale(tenant),
                ),
                crumb: number + 6,
                swept: Micros(7),
                extra: Micros(8),
                fee: fee.then(|| posting(AccountId::Tenant(tenant), AccountId::Fee)),
            })
        };
        Charge {
            allocation: AllocationId(number),
            job: JobId(number + 1),
            from_ms: number * 10,
            to_ms: number * 10 + 10,
            cost: Cost {
                money: Micros(2),
                gpu_ms: 3,
                frames: number,
            },
            posting: posting(AccountId::Tenant(tenant), AccountId::Revenue),
            used: (number != 1).then_some(Usage {
                busy_ms: 1,
                throttled_ms: 2,
                waited_ms: 3,
                launches: 4,
                refusals: 5,
                denials: 6,
                peak_vram_mib: 7,
                energy_mj: 8,
            }),
            crumb: 4,
            swept: Micros(5),
            extra: Micros(6),
            resale: (number != 2).then(|| resold(number != 3)),
        }
    }

    fn metered(count: u64) -> Event {
        Event::UsageMetered {
            node: NodeId(4),
            charges: (0..count).map(charge).collect(),
        }
    }

    #[test]
    fn what_is_packed_and_what_is_spelled_out_says_the_same() {
        for count in [0, 1, 2, 5, 40] {
            let event = metered(count);
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
            let Event::UsageMetered { node, charges } = &event else {
                unreachable!()
            };
            let spelled = serde_json::json!({ "UsageMetered": { "node": node, "charges": charges } });
            assert!(spelled["UsageMetered"]["charges"].is_array());
            assert_eq!(serde_json::from_value::<Event>(spelled.clone()).unwrap(), event);
            assert!(count < 5 || 3 * text.len() < 2 * spelled.to_string().len());
        }
    }

    #[test]
    fn each_account_is_named_once() {
        let text = serde_json::to_string(&metered(40)).unwrap();
        let tenant = format!("\"{}\"", TenantId(1));
        assert_eq!(text.matches(&tenant).count(), 1, "{text}");
        assert_eq!(text.matches("\"revenue\"").count(), 1);
    }

    #[test]
    fn what_cannot_be_unpacked_is_told() {
        let text = serde_json::to_string(&metered(2)).unwrap();
        let why = |text: &str| serde_json::from_str::<Event>(text).unwrap_err().to_string();
        assert!(why(&text.replace("\"v\":1", "\"v\":2")).contains("version 2"));
        let fewer = text.replacen("\"revenue\",", "", 1);
        assert!(
            fewer != text && why(&fewer).contains("account that is not there"),
            "{fewer}"
        );
    }
}
