//! Verifying: every event against its hash, its neighbours, the tree, and the heads signed over it; then
//! every row beside the chain against its own sum.
//!
//! Reads the journal once, in order, in pages; memory does not grow with it. Nothing is repaired.

use std::collections::HashMap;

use crate::chain::{Bad, Chain, Fault, Head};
use crate::error::JournalError;
use crate::hash::Hash;
use crate::head::{KeyError, PublicKey, SignedHead};
use crate::history;
use crate::key;
use crate::merkle::{Place, STORED_LEVEL};
use crate::reader::{JournalReader, batches};
use crate::store::{Conn, Row, args};

const ROWS_AT_ONCE: u32 = 64;
const ROWS_CHECKED: usize = 1_000;

#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Heads kept elsewhere. Those stored beside the journal are used as well.
    pub heads: Vec<SignedHead>,
    /// Whose signatures count.
    pub keys: Vec<PublicKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Events found sound, from the first on.
    pub events: u64,
    /// The end of the sound part.
    pub head: Head,
    pub first_bad: Option<Bad>,
    pub cut_tail: Option<Cut>,
    /// What is wrong with the first damaged row of history or idempotency keys.
    pub damaged_row: Option<String>,
    /// Signed heads that were used.
    pub heads_checked: usize,
    /// Heads given by the caller that count for nothing.
    pub bad_heads: Vec<HeadFault>,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        self.first_bad.is_none()
            && self.cut_tail.is_none()
            && self.bad_heads.is_empty()
            && self.damaged_row.is_none()
    }
}

/// The journal ends before an event that a head was signed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub signed_seq: u64,
    pub found_seq: u64,
    pub signed_at_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadFault {
    pub seq: u64,
    pub key_id: String,
    pub why: KeyError,
}

impl JournalReader {
    pub async fn verify(&self, options: VerifyOptions) -> Result<Report, JournalError> {
        let (heads, bad_heads) = self.believable(options).await?;
        let mut conn = self.conn().await?;
        let subtrees = read_subtrees(&mut conn).await;
        let mut chain = Chain::default();
        let mut first_bad = None;
        let mut watch = HeadWatch {
            heads: &heads,
            next: 0,
            last_good: 0,
        };
        'pages: loop {
            let rows = match batches(&mut conn, chain.seq + 1, ROWS_AT_ONCE).await {
                Ok(rows) => rows,
                Err(JournalError::Corrupt { .. }) => match single(&mut conn, &chain).await {
                    Ok(rows) => rows,
                    Err(()) => {
                        first_bad = Some(Bad {
                            seq: chain.seq + 1,
                            what: Fault::Unreadable,
                        });
                        break;
                    }
                },
                Err(error) => return Err(error),
            };
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let (first, mut lost) = (chain.seq + 1, false);
                let found = chain.accept(
                    row,
                    |place, node| lost |= !subtrees.holds(place, node),
                    |chain| watch.pass(chain),
                );
                if let Err(bad) = found {
                    first_bad = Some(bad);
                    break 'pages;
                }
                if lost {
                    first_bad = Some(Bad {
                        seq: first,
                        what: Fault::Tree,
                    });
                    break 'pages;
                }
            }
        }
        let mut end = chain.seq;
        if first_bad.is_none()
            && let Some(seq) = stray(&mut conn, chain.seq).await?
        {
            first_bad = Some(Bad {
                seq: chain.seq + 1,
                what: Fault::OutOfOrder,
            });
            end = end.max(seq);
        } else if first_bad.is_some() {
            end = end.max(stored_end(&mut conn).await?);
        }
        let cut_tail = heads.iter().rfind(|head| head.seq > end).map(|head| Cut {
            signed_seq: head.seq,
            found_seq: end,
            signed_at_ms: head.at_ms,
        });
        let events = first_bad.map_or(chain.seq, |bad| bad.seq - 1);
        let damaged_row = damaged_row(&mut conn).await?;
        Ok(Report {
            events,
            head: chain.head(),
            first_bad,
            cut_tail,
            damaged_row,
            heads_checked: heads.len(),
            bad_heads,
        })
    }

    /// The heads whose signature holds, in order; and those of the caller's that do not. Stored heads that
    /// do not check out are ignored: the key may be retired, and they can be removed by whoever edits.
    async fn believable(
        &self,
        options: VerifyOptions,
    ) -> Result<(Vec<SignedHead>, Vec<HeadFault>), JournalError> {
        let (mut good, mut faults) = (Vec::new(), Vec::new());
        let check = |head: &SignedHead| {
            let key = options
                .keys
                .iter()
                .find(|key| key.id() == head.key_id)
                .ok_or(KeyError::OtherKey)?;
            if head.platform != self.platform() {
                return Err(KeyError::OtherPlatform);
            }
            head.check(key)
        };
        for head in options.heads {
            match check(&head) {
                Ok(()) => good.push(head),
                Err(why) => faults.push(HeadFault {
                    seq: head.seq,
                    key_id: head.key_id,
                    why,
                }),
            }
        }
        match self.heads().await {
            Ok(stored) => good.extend(stored.into_iter().filter(|head| check(head).is_ok())),
            Err(JournalError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        good.sort_by_key(|head| (head.seq, head.at_ms));
        Ok((good, faults))
    }
}

/// Compares the chain with signed heads as it passes their events.
struct HeadWatch<'a> {
    heads: &'a [SignedHead],
    next: usize,
    last_good: u64,
}

impl HeadWatch<'_> {
    fn pass(&mut self, chain: &Chain) -> Result<(), Bad> {
        while let Some(head) = self.heads.get(self.next).filter(|head| head.seq <= chain.seq) {
            self.next += 1;
            if head.seq == 0 {
                continue;
            }
            if head.hash != chain.hash || head.root != chain.frontier.root() {
                // Up to the last head that agreed all is proven; the first changed event is after it.
                return Err(Bad {
                    seq: self.last_good + 1,
                    what: Fault::Rewritten,
                });
            }
            self.last_good = head.seq;
        }
        Ok(())
    }
}

struct Subtrees(HashMap<Place, Hash>);

impl Subtrees {
    fn holds(&self, place: Place, node: Hash) -> bool {
        place.level < STORED_LEVEL || self.0.get(&place) == Some(&node)
    }
}

/// Rows that cannot be read are as good as missing: the check that needs them says so.
async fn read_subtrees(conn: &mut Conn) -> Subtrees {
    let rows = conn
        .rows("SELECT level, place, hash FROM subtree", args![])
        .await
        .unwrap_or_default();
    let entry = |row: &Row| -> Result<(Place, Hash), JournalError> {
        let level =
            u32::try_from(row.int(0)?).map_err(|_| JournalError::corrupt("a level is not a level"))?;
        Ok((
            Place {
                level,
                index: row.count(1)?,
            },
            row.hash(2)?,
        ))
    };
    Subtrees(rows.iter().filter_map(|row| entry(row).ok()).collect())
}

/// One row at a time, so that an unreadable one does not hide the good ones before it.
async fn single(conn: &mut Conn, chain: &Chain) -> Result<Vec<crate::chain::BatchRow>, ()> {
    batches(conn, chain.seq + 1, 1).await.map_err(drop)
}

/// Goes over the rows that the chain does not cover, a page at a time.
async fn damaged_row(conn: &mut Conn) -> Result<Option<String>, JournalError> {
    let check_history = |row: &Row| history::read(row).map(|row| [row.kind, row.id]);
    let check_key = |row: &Row| key::read(row).map(|row| [row.principal, row.key]);
    let tables: [(&str, &str, &str, &RowCheck); 2] = [
        ("history", "kind, id", history::COLUMNS, &check_history),
        ("idempotency", "principal, key", key::COLUMNS, &check_key),
    ];
    for (table, order, columns, check) in tables {
        let mut last: Option<[String; 2]> = None;
        loop {
            let beyond = if last.is_some() {
                format!("WHERE ({order}) > ($1, $2)")
            } else {
                String::new()
            };
            let sql = format!("SELECT {columns} FROM {table} {beyond} ORDER BY {order} LIMIT {ROWS_CHECKED}");
            let values = last
                .take()
                .map_or(args![], |[first, second]| args![first, second]);
            let rows = match conn.rows(&sql, values).await {
                Ok(rows) => rows,
                Err(error) => match JournalError::storage("reading rows", error) {
                    JournalError::Corrupt { what } => return Ok(Some(what)),
                    error => return Err(error),
                },
            };
            for row in &rows {
                match check(row) {
                    Ok(key) => last = Some(key),
                    Err(JournalError::Corrupt { what }) => return Ok(Some(what)),
                    Err(error) => return Err(error),
                }
            }
            if rows.len() < ROWS_CHECKED {
                break;
            }
        }
    }
    Ok(None)
}

/// Checks one row and gives its key back.
type RowCheck = dyn Fn(&Row) -> Result<[String; 2], JournalError> + Sync;

/// A row that ordered reading never meets: it starts before the end but was not part of the chain.
async fn stray(conn: &mut Conn, end: u64) -> Result<Option<u64>, JournalError> {
    let last = stored_end(conn).await?;
    Ok((last > end).then_some(last))
}

async fn stored_end(conn: &mut Conn) -> Result<u64, JournalError> {
    let row = conn
        .row("SELECT coalesce(max(last_seq), 0) FROM batch", args![])
        .await
        .map_err(|error| JournalError::storage("reading the head", error))?;
    Ok(row.and_then(|row| row.count(0).ok()).unwrap_or(0))
}
