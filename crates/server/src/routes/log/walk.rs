//! A walk through kept logs, in their order, a bounded stretch of the way at a time.
//!
//! Numbers of stretches rise in the order in which they became visible (`journal/log`), so a place in a walk is a number and
//! a line: what comes later is after it, and nothing comes before.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use tenure_api::v1::log::LogLineView;
use tenure_domain::Time;
use tenure_domain::id::UserId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::{Find, LogStretch};

use super::super::past;
use super::query::Sought;
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::log::{About, Level, UNSAID_BIT, clean, lines, unpack};

/// Numbers looked at in one question to the database, and questions in one step.
const WINDOW: u64 = 50_000;
const WINDOWS: usize = 8;
/// Stretches found in one question.
const HEADS: u32 = 512;
/// Bytes looked through in one step, and taken from the database at once.
const STEP_BYTES: u64 = 8 << 20;
const GROUP_BYTES: u64 = 1 << 20;

/// Where a walk is: the last line it gave of a stretch, in the order it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    stretch: u64,
    /// Of the oldest first: lines after this one remain; of the newest first, lines before it.
    line: u32,
}

impl Place {
    /// Past the whole stretch.
    fn past(stretch: u64, newest_first: bool) -> Place {
        let line = if newest_first { 0 } else { u32::MAX };
        Place { stretch, line }
    }

    fn is_past(self, newest_first: bool) -> bool {
        self == Place::past(self.stretch, newest_first)
    }

    pub fn read(text: &str) -> Option<Place> {
        let (stretch, line) = text.split_once(' ')?;
        Some(Place {
            stretch: stretch.parse().ok()?,
            line: line.parse().ok()?,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stretch, self.line)
    }
}

/// A line that fits.
pub(super) struct Found {
    place: (u64, u32),
    pub at_ms: i64,
    pub level: Option<Level>,
    pub stream: Arc<str>,
    job: Arc<str>,
    pub about: Arc<About>,
    pub text: String,
}

impl Found {
    pub fn view(self) -> LogLineView {
        let about = &self.about;
        LogLineView {
            id: format!("{}.{}", self.place.0, self.place.1),
            at: Time(self.at_ms).into(),
            level: self.level.map(|level| level.as_str().to_owned()),
            stream: self.stream.to_string(),
            job: self.job.to_string(),
            name: about.name.clone(),
            task_of: about.task.map(|(of, _)| of.to_string()),
            task: about.task.map(|(_, number)| number),
            member: about.member,
            attempt: about.attempt,
            node: about.node_name.clone(),
            labels: about.labels.clone(),
            text: self.text,
        }
    }
}

pub(super) struct Walk {
    caller: Caller,
    sought: Sought,
    /// Stretches strictly between these are walked.
    above: u64,
    below: u64,
    place: Option<Place>,
    done: bool,
    /// Whether the caller may read what somebody wrote at some path.
    sight: HashMap<(UserId, String), bool>,
}

impl Walk {
    /// Whatever is there now is walked, from a place on; what comes meanwhile is for a later walk.
    pub async fn begin(
        shared: &Shared,
        caller: Caller,
        sought: Sought,
        place: Option<Place>,
    ) -> Answer<Walk> {
        let store = &shared.app.logs;
        let newest = store.newest().await?;
        let (above, below) = store.bounds(sought.since_ms, sought.until_ms).await?;
        // INVARIANT: all up to the newest is visible by now, so a place at the end leaves nothing behind.
        let below = below.min(newest + 1);
        Ok(Walk {
            caller,
            sought,
            above: above.min(newest),
            below,
            place,
            done: false,
            sight: HashMap::new(),
        })
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// The next window, both ends not in it; none where the walk is at its end.
    fn window(&self) -> Option<(u64, u64)> {
        let newest_first = self.sought.newest_first;
        let (mut above, mut below) = (self.above, self.below);
        if let Some(place) = self.place {
            let rest = u64::from(!place.is_past(newest_first));
            if newest_first {
                below = below.min(place.stretch + rest);
            } else {
                above = above.max(place.stretch.saturating_sub(rest));
            }
        }
        if above + 1 >= below {
            return None;
        }
        if newest_first {
            above = above.max(below.saturating_sub(WINDOW + 1));
        } else {
            below = below.min(above + WINDOW + 1);
        }
        Some((above, below))
    }

    /// Goes on until so many lines are found, so much was looked through, or the end.
    pub async fn step(&mut self, shared: &Shared, limit: usize) -> Answer<Vec<Found>> {
        let mut found = Vec::new();
        let mut looked = 0;
        for _ in 0..WINDOWS {
            let Some((above, below)) = self.window() else {
                self.end();
                return Ok(found);
            };
            let (ids, cut) = self.heads(shared, above, below).await?;
            let mut rest = &ids[..];
            while !rest.is_empty() {
                let mut size = 0;
                let fits = |(_, bytes): &&(u64, u64)| {
                    size += bytes;
                    size <= GROUP_BYTES
                };
                let count = rest.iter().take_while(fits).count().max(1);
                let (group, left) = rest.split_at(count);
                rest = left;
                let ids: Vec<u64> = group.iter().map(|(id, _)| *id).collect();
                let stretches = shared.app.logs.stretches(&ids).await?;
                let mut stretches: HashMap<u64, LogStretch> = stretches
                    .into_iter()
                    .map(|stretch| (stretch.id, stretch))
                    .collect();
                for id in ids {
                    if let Some(stretch) = stretches.remove(&id) {
                        looked += stretch.bytes;
                        self.look(shared, &stretch, limit, &mut found);
                        if found.len() >= limit {
                            return Ok(found);
                        }
                    }
                    self.place = Some(Place::past(id, self.sought.newest_first));
                    if looked >= STEP_BYTES {
                        return Ok(found);
                    }
                }
                tokio::task::yield_now().await;
            }
            if !cut {
                let edge = if self.sought.newest_first {
                    above + 1
                } else {
                    below - 1
                };
                self.place = Some(Place::past(edge, self.sought.newest_first));
            }
        }
        Ok(found)
    }

    fn end(&mut self) {
        self.done = true;
        if self.place.is_none() {
            let newest_first = self.sought.newest_first;
            let at = if newest_first {
                self.above + 1
            } else {
                self.below.saturating_sub(1)
            };
            self.place = Some(Place::past(at, newest_first));
        }
    }

    /// Stretches in a window that may hold something, in order, with their sizes; and whether there are more in it.
    async fn heads(&self, shared: &Shared, above: u64, below: u64) -> Answer<(Vec<(u64, u64)>, bool)> {
        let newest_first = self.sought.newest_first;
        let mut all = BTreeSet::new();
        let mut cut: Option<u64> = None;
        for within in &self.sought.within {
            let find = Find {
                within: within.clone(),
                levels: self.sought.levels,
                since_ms: self.sought.since_ms,
                until_ms: self.sought.until_ms,
                above,
                below,
                newest_first,
                limit: HEADS,
            };
            let heads = shared.app.logs.heads(&find).await?;
            if let Some(last) = heads.last().filter(|_| heads.len() == HEADS as usize) {
                let nearer = |cut: u64| {
                    if newest_first {
                        cut.max(last.id)
                    } else {
                        cut.min(last.id)
                    }
                };
                cut = Some(cut.map_or(last.id, nearer));
            }
            all.extend(heads.into_iter().map(|head| (head.id, head.bytes)));
        }
        // Beyond where one list ends, others would be given out of order.
        let within = |id: u64| match cut {
            None => true,
            Some(cut) if newest_first => id >= cut,
            Some(cut) => id <= cut,
        };
        let mut ids: Vec<(u64, u64)> = all.into_iter().filter(|(id, _)| within(*id)).collect();
        if newest_first {
            ids.reverse();
        }
        Ok((ids, cut.is_some()))
    }

    /// Takes what fits out of one stretch.
    fn look(&mut self, shared: &Shared, stretch: &LogStretch, limit: usize, found: &mut Vec<Found>) {
        let source = &stretch.source;
        let Ok(about) = serde_json::from_str::<About>(&source.about) else {
            return;
        };
        let labels = &self.sought.labels;
        let bears = |(key, value): &(String, String)| about.bears(&source.stream, key, value);
        if !labels.iter().all(bears) || !self.sees(shared, about.owner, &source.scope) {
            return;
        }
        let newest_first = self.sought.newest_first;
        let from = self.place.filter(|place| place.stretch == stretch.id);
        let bytes = unpack(&stretch.data);
        let all: Vec<&[u8]> = lines(&bytes).collect();
        let mut order: Vec<u32> = (0..u32::try_from(all.len()).unwrap_or(u32::MAX)).collect();
        if let Some(place) = from {
            order.retain(|line| match newest_first {
                true => *line < place.line,
                false => *line > place.line,
            });
        }
        if newest_first {
            order.reverse();
        }
        let (about, stream, job) = (
            Arc::new(about),
            Arc::from(source.stream.as_str()),
            Arc::from(source.job.as_str()),
        );
        for line in order {
            let text = clean(all[line as usize]);
            let level = Level::of_line(&text);
            let bit = level.map_or(UNSAID_BIT, Level::bit);
            let has = self.sought.text.is_empty() || text.to_lowercase().contains(&self.sought.text);
            if bit & self.sought.levels == 0 || !has {
                continue;
            }
            found.push(Found {
                place: (stretch.id, line),
                at_ms: stretch.at_ms,
                level,
                stream: Arc::clone(&stream),
                job: Arc::clone(&job),
                about: about.clone(),
                text: text.into_owned(),
            });
            if found.len() >= limit {
                self.place = Some(Place {
                    stretch: stretch.id,
                    line,
                });
                return;
            }
        }
    }

    /// The rights by which a job's own log is read, asked once for each owner.
    fn sees(&mut self, shared: &Shared, owner: UserId, path: &str) -> bool {
        let caller = &self.caller;
        *self.sight.entry((owner, path.to_owned())).or_insert_with(|| {
            let state = shared.app.controller.view().read();
            past::may(caller, &state, Action::JobRead, ScopeId::User(owner), path).is_ok()
        })
    }

    /// Rights may change while a long walk goes on.
    pub fn look_anew(&mut self) {
        self.sight.clear();
    }
}
