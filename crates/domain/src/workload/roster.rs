//! The roster: all living jobs by id, which is by age.
//!
//! Each job has a place of its own. Kept side by side in the tree's nodes they were moved whenever a node was full, and, as
//! new ones always come last, left half of every node empty: a job is much larger than its id.

use std::collections::BTreeMap;
use std::ops::{Index, RangeBounds};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::job::Job;
use crate::id::JobId;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Roster(BTreeMap<JobId, Box<Job>>);

impl Roster {
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        self.0.get(id).map(|job| &**job)
    }

    pub fn contains_key(&self, id: &JobId) -> bool {
        self.0.contains_key(id)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &JobId> {
        self.0.keys()
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.0.values().map(|job| &**job)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&JobId, &Job)> {
        self.0.iter().map(|(id, job)| (id, &**job))
    }

    pub fn range(&self, range: impl RangeBounds<JobId>) -> impl DoubleEndedIterator<Item = (&JobId, &Job)> {
        self.0.range(range).map(|(id, job)| (id, &**job))
    }

    pub fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.0.get_mut(id).map(|job| &mut **job)
    }

    pub(crate) fn insert(&mut self, id: JobId, job: Job) {
        self.0.insert(id, Box::new(job));
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> Option<Job> {
        self.0.remove(id).map(|job| *job)
    }
}

impl Index<&JobId> for Roster {
    type Output = Job;

    fn index(&self, id: &JobId) -> &Job {
        &self.0[id]
    }
}

impl Serialize for Roster {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.values())
    }
}

impl<'de> Deserialize<'de> for Roster {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Roster, D::Error> {
        let rows = Vec::<Box<Job>>::deserialize(deserializer)?;
        Ok(Roster(rows.into_iter().map(|job| (job.id, job)).collect()))
    }
}
