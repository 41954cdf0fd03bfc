//! What is to be asked next: streams by when they are due, one question at a time to each node.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tenure_api::channel::LogStream;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_journal::LogSource;
use tokio::time::Instant;

use super::about::About;

/// A stream that is collected.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub id: u64,
    pub allocation: AllocationId,
    pub stream: LogStream,
    pub node: NodeId,
    pub job: JobId,
    pub parent: Option<JobId>,
    pub tenant: String,
    pub scope: String,
    /// How far it was read and kept.
    pub next: u64,
    /// How long until it is asked again.
    pub wait: Duration,
    /// A line was begun there and not ended since.
    pub held: Option<Instant>,
    /// Its allocation was seen to have ended.
    pub ended: Option<Instant>,
}

impl Tracked {
    /// Of what is stored; none of what this version does not understand.
    pub fn of(source: &LogSource, wait: Duration) -> Option<Tracked> {
        let about: About = serde_json::from_str(&source.about).ok()?;
        Some(Tracked {
            id: source.id,
            allocation: source.allocation.parse().ok()?,
            stream: match source.stream.as_str() {
                "stdout" => LogStream::Stdout,
                "stderr" => LogStream::Stderr,
                _ => return None,
            },
            node: about.node,
            job: source.job.parse().ok()?,
            parent: about.task.map(|(of, _)| of),
            tenant: source.tenant.clone(),
            scope: source.scope.clone(),
            next: source.next,
            wait,
            held: None,
            ended: None,
        })
    }
}

/// All that is collected, and in which order.
#[derive(Default)]
pub(super) struct Track {
    all: HashMap<u64, Tracked>,
    of_job: HashMap<JobId, Vec<u64>>,
    due: BTreeSet<(Instant, u64)>,
    when: HashMap<u64, Instant>,
    /// Nodes that were asked and have not answered, and what waits to be asked of them.
    asked: HashMap<NodeId, VecDeque<u64>>,
    /// Asked for now, while something of it was under way.
    again: HashSet<u64>,
}

impl Track {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn add(&mut self, tracked: Tracked, due: Instant) {
        if self.all.contains_key(&tracked.id) {
            return;
        }
        self.of_job.entry(tracked.job).or_default().push(tracked.id);
        self.put(tracked.id, due);
        self.all.insert(tracked.id, tracked);
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Tracked> {
        self.all.get_mut(&id)
    }

    /// Everything of a job is asked for as soon as can be: it, or an attempt of it, has ended.
    pub fn hurry(&mut self, job: JobId, now: Instant) {
        for id in self.of_job.get(&job).cloned().unwrap_or_default() {
            if self.when.contains_key(&id) {
                self.put(id, now);
            } else {
                self.again.insert(id);
            }
        }
    }

    fn put(&mut self, id: u64, due: Instant) {
        if let Some(before) = self.when.insert(id, due) {
            self.due.remove(&(before, id));
        }
        self.due.insert((due, id));
    }

    /// When the next is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes one that is due and whose node is not being asked; it is under way until it is given back or dropped.
    pub fn take(&mut self, now: Instant) -> Option<Tracked> {
        while let Some(&(due, id)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            self.when.remove(&id);
            let Some(tracked) = self.all.get(&id) else {
                continue;
            };
            match self.asked.get_mut(&tracked.node) {
                Some(line) => line.push_back(id),
                None => {
                    self.asked.insert(tracked.node, VecDeque::new());
                    return Some(tracked.clone());
                }
            }
        }
        None
    }

    /// The node has answered: what waited for that comes next, in its turn.
    fn answered(&mut self, node: NodeId, now: Instant) {
        let waiting = self.asked.remove(&node).unwrap_or_default();
        // They have waited: their moment is before that of whatever becomes due now.
        for (id, back) in waiting.into_iter().rev().zip(1..) {
            if self.all.contains_key(&id) {
                self.put(id, now.checked_sub(Duration::from_millis(back)).unwrap_or(now));
            }
        }
    }

    pub fn give_back(&mut self, id: u64, node: NodeId, due: Instant, now: Instant) {
        self.answered(node, now);
        if self.all.contains_key(&id) {
            let due = if self.again.remove(&id) { now } else { due };
            self.put(id, due);
        }
    }

    /// Nothing more is wanted of it.
    pub fn drop(&mut self, id: u64, node: NodeId, now: Instant) {
        self.answered(node, now);
        self.again.remove(&id);
        if let Some(before) = self.when.remove(&id) {
            self.due.remove(&(before, id));
        }
        let Some(tracked) = self.all.remove(&id) else {
            return;
        };
        if let Some(of_job) = self.of_job.get_mut(&tracked.job) {
            of_job.retain(|other| *other != id);
            if of_job.is_empty() {
                self.of_job.remove(&tracked.job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(id: u64, node: u64, job: u64) -> Tracked {
        Tracked {
            id,
            allocation: AllocationId(id),
            stream: LogStream::Stdout,
            node: NodeId(node),
            job: JobId(job),
            parent: None,
            tenant: String::new(),
            scope: String::new(),
            next: 0,
            wait: Duration::ZERO,
            held: None,
            ended: None,
        }
    }

    #[test]
    fn a_node_is_asked_one_thing_at_a_time_and_each_gets_its_turn() {
        let now = Instant::now();
        let mut track = Track::default();
        for (id, node) in [(1, 7), (2, 7), (3, 7), (4, 8)] {
            track.add(tracked(id, node, id), now);
        }
        let first: Vec<u64> = std::iter::from_fn(|| track.take(now)).map(|t| t.id).collect();
        assert_eq!(first, [1, 4], "one of each node");
        // The first is wanted again at once, and still the others of its node come before it.
        let mut turns = Vec::new();
        let mut under_way = 1;
        for round in 1..=4 {
            let now = now + Duration::from_millis(round);
            track.give_back(under_way, NodeId(7), now, now);
            under_way = track.take(now).expect("one is due").id;
            turns.push(under_way);
        }
        assert_eq!(turns, [2, 3, 1, 2]);
    }

    #[test]
    fn what_ended_is_asked_for_now_even_while_it_is_under_way() {
        let now = Instant::now();
        let far = now + Duration::from_secs(100);
        let mut track = Track::default();
        track.add(tracked(1, 7, 1), now);
        track.add(tracked(2, 8, 1), far);
        assert_eq!(track.take(now).map(|t| t.id), Some(1));
        track.hurry(JobId(1), now);
        assert_eq!(track.take(now).map(|t| t.id), Some(2));
        track.give_back(1, NodeId(7), far, now);
        assert_eq!(track.take(now).map(|t| t.id), Some(1));
        track.drop(1, NodeId(7), now);
        track.drop(2, NodeId(8), now);
        assert!(track.len() == 0 && track.next_due().is_none() && track.of_job.is_empty());
    }
}
