//! Bulk memory shared with the broker: small and middling spans out of arenas, large ones as regions of their own that
//! are kept for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tenure_wire::{Shared, Span};

use crate::abi::OUT_OF_HOST_MEMORY;
use crate::link::{Link, lock};

const ARENA: u64 = 64 << 20;
/// Spans beyond this are regions of their own.
const LARGE: u64 = 16 << 20;
/// How much of them is kept unused.
const KEPT_MOST: u64 = 512 << 20;
const ALIGN: u64 = 4096;

#[derive(Default)]
pub struct Bulk(Mutex<State>);

#[derive(Default)]
struct State {
    next: u32,
    arenas: Vec<Arena>,
    kept: Vec<(u32, Arc<Shared>)>,
}

struct Arena {
    region: u32,
    shared: Arc<Shared>,
    /// Free ranges: start and length.
    free: BTreeMap<u64, u64>,
}

/// A span that is ours until dropped or freed.
pub struct Room {
    pub span: Span,
    shared: Arc<Shared>,
    link: &'static Link,
}

impl Room {
    /// Where it begins; as long as the span says.
    pub fn start(&self) -> *mut u8 {
        self.shared
            .part(self.span.at, self.span.bytes)
            .unwrap_or(std::ptr::null_mut())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.link.bulk.free(self.link, self.span, &self.shared);
    }
}

impl Arena {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (start, length) = self
            .free
            .iter()
            .find(|(_, length)| **length >= bytes)
            .map(|(start, length)| (*start, *length))?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    fn free(&mut self, start: u64, bytes: u64) {
        let (mut start, mut bytes) = (start, bytes);
        if let Some((before, length)) = self.free.range(..start).next_back().map(|(a, b)| (*a, *b))
            && before + length == start
        {
            self.free.remove(&before);
            (start, bytes) = (before, length + bytes);
        }
        if let Some(length) = self.free.remove(&(start + bytes)) {
            bytes += length;
        }
        self.free.insert(start, bytes);
    }
}

impl Bulk {
    /// Room for so many bytes. What commands have done with is taken back first when there is none.
    pub fn room(link: &'static Link, bytes: u64) -> Result<Room, i32> {
        if let Some(room) = link.bulk.try_room(link, bytes, false) {
            return Ok(room);
        }
        link.pendings.reclaim(link)?;
        link.bulk
            .try_room(link, bytes, true)
            .or_else(|| {
                link.pendings.await_all(link).ok()?;
                link.bulk.drop_kept(link);
                link.bulk.try_room(link, bytes, true)
            })
            .ok_or(OUT_OF_HOST_MEMORY)
    }

    fn try_room(&self, link: &'static Link, bytes: u64, grow: bool) -> Option<Room> {
        let mut state = lock(&self.0);
        if bytes > LARGE {
            return state.large(link, bytes);
        }
        let whole = bytes.max(1).next_multiple_of(ALIGN);
        let of = |arena: &Arena, at: u64| Room {
            span: Span {
                region: arena.region,
                at,
                bytes,
            },
            shared: arena.shared.clone(),
            link,
        };
        for arena in &mut state.arenas {
            if let Some(at) = arena.take(whole) {
                return Some(of(arena, at));
            }
        }
        if !grow && !state.arenas.is_empty() {
            return None;
        }
        let region = state.number();
        let shared = Arc::new(link.region(region, ARENA)?);
        let mut arena = Arena {
            region,
            shared,
            free: BTreeMap::from([(0, ARENA)]),
        };
        let at = arena.take(whole)?;
        let room = of(&arena, at);
        state.arenas.push(arena);
        Some(room)
    }

    fn free(&self, link: &Link, span: Span, shared: &Arc<Shared>) {
        let mut state = lock(&self.0);
        if let Some(arena) = state.arenas.iter_mut().find(|arena| arena.region == span.region) {
            arena.free(span.at, span.bytes.max(1).next_multiple_of(ALIGN));
            return;
        }
        let kept: u64 = state.kept.iter().map(|(_, shared)| shared.bytes() as u64).sum();
        if kept + shared.bytes() as u64 <= KEPT_MOST {
            state.kept.push((span.region, shared.clone()));
        } else {
            drop(state);
            link.let_region_go(span.region);
        }
    }

    fn drop_kept(&self, link: &Link) {
        let kept = std::mem::take(&mut lock(&self.0).kept);
        for (region, _) in kept {
            link.let_region_go(region);
        }
    }
}

impl State {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn large(&mut self, link: &'static Link, bytes: u64) -> Option<Room> {
        let fits = |shared: &Arc<Shared>| {
            let there = shared.bytes() as u64;
            there >= bytes && there <= bytes.saturating_mul(2)
        };
        let (region, shared) = match self.kept.iter().position(|(_, shared)| fits(shared)) {
            Some(place) => self.kept.swap_remove(place),
            None => {
                let region = self.number();
                let whole = bytes.checked_next_multiple_of(2 << 20)?;
                (region, Arc::new(link.region(region, whole)?))
            }
        };
        Some(Room {
            span: Span { region, at: 0, bytes },
            shared,
            link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_gives_each_byte_once_and_heals() {
        let mut arena = Arena {
            region: 1,
            shared: Arc::new(Shared::create(4096).unwrap()),
            free: BTreeMap::from([(0, 100)]),
        };
        let spans: Vec<u64> = (0..10).map(|_| arena.take(10).unwrap()).collect();
        assert_eq!(spans, (0..10).map(|n| n * 10).collect::<Vec<_>>());
        assert!(arena.take(1).is_none());
        for at in [30, 10, 20, 0, 90, 50, 70, 60, 80, 40] {
            arena.free(at, 10);
        }
        assert_eq!(arena.free, BTreeMap::from([(0, 100)]));
    }
}
