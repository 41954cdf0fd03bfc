//! Spans on their way, written out: bounded in bytes. Where the collector takes none, the oldest are dropped and counted,
//! and nobody waits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// What an item takes beside its text.
const ITEM_BYTES: usize = 48;

/// A span, and the event that it was told by; none where it was seen and is in no journal.
pub(super) struct Item {
    pub json: Box<str>,
    pub seq: Option<u64>,
}

impl Item {
    fn bytes(&self) -> usize {
        self.json.len() + ITEM_BYTES
    }
}

#[derive(Default)]
struct Inner {
    items: VecDeque<Item>,
    /// Of those that wait and those under way.
    bytes: usize,
    under_way: usize,
    /// The first event that those under way were told by.
    first_under_way: Option<u64>,
    /// Up to here events were looked at.
    seen: u64,
}

pub(super) struct Queue {
    inner: Mutex<Inner>,
    max_bytes: usize,
    pub grown: Notify,
}

impl Queue {
    pub fn new(max_bytes: usize) -> Queue {
        Queue {
            inner: Mutex::default(),
            max_bytes,
            grown: Notify::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("short and without panics")
    }

    /// Puts one behind the others; says how many were dropped for it.
    pub fn push(&self, item: Item) -> u64 {
        let mut inner = self.inner();
        inner.bytes += item.bytes();
        inner.items.push_back(item);
        let mut dropped = 0;
        while inner.bytes > self.max_bytes {
            let Some(oldest) = inner.items.pop_front() else {
                break;
            };
            inner.bytes -= oldest.bytes();
            dropped += 1;
        }
        drop(inner);
        self.grown.notify_one();
        dropped
    }

    /// Everything up to this event is in the queue, or was.
    pub fn seen(&self, seq: u64) {
        self.inner().seen = seq;
    }

    pub fn len(&self) -> usize {
        self.inner().items.len()
    }

    /// Takes the oldest, to be sent; they are under way until `done`.
    pub fn take(&self, most: usize) -> Vec<Item> {
        let mut inner = self.inner();
        let count = inner.items.len().min(most);
        let taken: Vec<Item> = inner.items.drain(..count).collect();
        inner.under_way = taken.iter().map(Item::bytes).sum();
        inner.first_under_way = taken.iter().find_map(|item| item.seq);
        taken
    }

    pub fn done(&self) {
        let mut inner = self.inner();
        inner.bytes -= std::mem::take(&mut inner.under_way);
        inner.first_under_way = None;
    }

    /// Whatever events up to this one say was sent, or dropped.
    pub fn mark(&self) -> u64 {
        let inner = self.inner();
        let waiting = inner.items.iter().find_map(|item| item.seq);
        let first = inner.first_under_way.or(waiting);
        first.map_or(inner.seen, |first| first.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(seq: u64, bytes: usize) -> Item {
        Item {
            json: "x".repeat(bytes).into(),
            seq: Some(seq),
        }
    }

    #[test]
    fn the_oldest_give_way_and_what_waits_stays_bounded() {
        let queue = Queue::new(10 * (100 + ITEM_BYTES));
        let dropped: u64 = (1..=25).map(|seq| queue.push(item(seq, 100))).sum();
        assert_eq!((dropped, queue.len()), (15, 10));
        assert_eq!(queue.take(1)[0].seq, Some(16));
        // What is under way counts, too.
        let dropped: u64 = (26..=30).map(|seq| queue.push(item(seq, 100))).sum();
        assert_eq!((dropped, queue.len()), (5, 9));
        queue.done();
        assert_eq!(queue.push(item(31, 100)), 0);
        assert_eq!(
            queue.push(item(32, 10_000_000)),
            11,
            "one too large for all drops itself"
        );
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_mark_is_before_the_first_that_was_not_taken() {
        let queue = Queue::new(1 << 20);
        queue.seen(7);
        assert_eq!(queue.mark(), 7);
        queue.push(Item {
            json: "seen".into(),
            seq: None,
        });
        queue.push(item(9, 1));
        queue.push(item(9, 1));
        queue.push(item(12, 1));
        queue.seen(20);
        assert_eq!(queue.mark(), 8);
        queue.take(2);
        assert_eq!(queue.mark(), 8, "under way");
        queue.done();
        assert_eq!(queue.mark(), 8, "the other of event 9 waits");
        queue.take(2);
        queue.done();
        assert_eq!(queue.mark(), 20);
    }
}
