//! Searching the journal for what fits some words, stretch by stretch, until a page is full, the journal is through or
//! patience is at its end; and then saying how far it came. What names an id is looked for from when the id was made.

use std::time::{Duration, Instant};

use tenure_api::v1::event::EventView;

use super::super::desk::Said;
use super::super::health::apart;
use super::super::session::Session;
use super::super::told;

/// Events of a page at most.
pub(super) const SHOWN: usize = 100;
/// Events read at once: few at first, for most pages are full soon.
const FIRST: u64 = 500;
pub(super) const MOST: u64 = 5_000;
const PATIENCE: Duration = Duration::from_millis(1500);
/// An id is made a moment before what it is of is written down.
const BEFORE_MS: i64 = 2_000;

/// Which way one goes, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the newest of these to older ones.
    Back(u64),
    /// From the oldest to newer ones.
    On(u64),
}

pub(super) struct Found {
    /// In the order they were found.
    pub events: Vec<EventView>,
    /// The first and last event searched.
    pub searched: (u64, u64),
    /// Where to go on; none where there is nothing more.
    pub next: Option<Way>,
}

impl Way {
    /// Where a search begins that does not say.
    pub async fn of(session: &Session, words: &[String]) -> Way {
        match words.iter().find_map(|word| made_ms(word)) {
            Some(at_ms) => Way::On(told::since(session, at_ms - BEFORE_MS).await),
            None => Way::Back(told::head(session)),
        }
    }

    /// The next stretch of so many events, and the way after it.
    fn stretch(self, many: u64, head: u64) -> Option<(u64, u64, Way)> {
        match self {
            Way::Back(0) => None,
            Way::Back(until) => {
                let until = until.min(head);
                let from = until.saturating_sub(many - 1).max(1);
                Some((from, until, Way::Back(from - 1)))
            }
            Way::On(from) if from > head => None,
            Way::On(from) => {
                let from = from.max(1);
                let until = from.saturating_add(many - 1).min(head);
                Some((from, until, Way::On(until + 1)))
            }
        }
    }

    /// On from right after an event.
    fn after(self, seq: u64) -> Way {
        match self {
            Way::Back(_) => Way::Back(seq - 1),
            Way::On(_) => Way::On(seq + 1),
        }
    }
}

pub(super) async fn search(session: &Session, words: &[String], way: Way) -> Said<Found> {
    let (head, begun) = (told::head(session), Instant::now());
    let (mut at, mut many) = (way, FIRST);
    let mut found = Found {
        events: Vec::new(),
        searched: (0, 0),
        next: None,
    };
    while let Some((from, until, then)) = at.stretch(many, head) {
        let mut events = told::events(session, from, until).await?;
        if matches!(at, Way::Back(_)) {
            events.reverse();
        }
        let fitting = events.into_iter().filter(|event| fits(session, event, words));
        found.events.extend(fitting.take(SHOWN - found.events.len()));
        // A full page goes on after its last event, another after all that was looked through.
        at = match found.events.last() {
            Some(last) if found.events.len() == SHOWN => at.after(last.seq),
            _ => then,
        };
        if found.events.len() == SHOWN || begun.elapsed() > PATIENCE {
            break;
        }
        many = (many * 2).min(MOST);
    }
    found.next = at.stretch(1, head).map(|_| at);
    found.searched = match (way, at) {
        (Way::Back(until), Way::Back(next)) => (next + 1, until.min(head)),
        (Way::On(from), Way::On(next)) => (from, next - 1),
        _ => (0, 0),
    };
    Ok(found)
}

fn fits(session: &Session, event: &EventView, words: &[String]) -> bool {
    if words.is_empty() {
        return true;
    }
    let text = format!(
        "{} {} {} {} {} {}",
        event.seq,
        event.kind,
        apart(&event.kind),
        event.by,
        session.named(&event.by),
        event.data
    );
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

/// When an id was made, milliseconds since 1970: its first 42 bits. None for what is no id.
fn made_ms(word: &str) -> Option<i64> {
    let (prefix, digits) = word.split_once('_')?;
    let known = prefix.len() == 3 && prefix.bytes().all(|byte| byte.is_ascii_lowercase());
    // Digits are those of any id.
    let id: tenure_domain::id::JobId = format!("job_{digits}").parse().ok()?;
    known.then_some((id.0 >> 22) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_go_on_where_the_last_one_ended() {
        assert_eq!(
            Way::Back(1200).stretch(500, 2000),
            Some((701, 1200, Way::Back(700)))
        );
        assert_eq!(Way::Back(9).stretch(500, 2000), Some((1, 9, Way::Back(0))));
        assert_eq!(Way::Back(0).stretch(500, 2000), None);
        assert_eq!(Way::Back(u64::MAX).stretch(10, 20), Some((11, 20, Way::Back(10))));
        assert_eq!(Way::On(0).stretch(500, 2000), Some((1, 500, Way::On(501))));
        assert_eq!(
            Way::On(1900).stretch(500, 2000),
            Some((1900, 2000, Way::On(2001)))
        );
        assert_eq!(Way::On(2001).stretch(500, 2000), None);
    }

    #[test]
    fn an_id_says_when_it_was_made() {
        let job = tenure_domain::id::JobId((1_795_000_000_000 << 22) | 7);
        assert_eq!(made_ms(&job.to_string()), Some(1_795_000_000_000));
        let node = tenure_domain::id::NodeId(1_795_000_000_001 << 22);
        assert_eq!(made_ms(&node.to_string()), Some(1_795_000_000_001));
        for word in [
            "job",
            "job_",
            "scope_created",
            "job_6gz54gssw000",
            "NODE_6gz54gssw0000",
        ] {
            assert_eq!(made_ms(word), None, "{word}");
        }
    }
}
