//! Frames of a scene or a clip as people write them: `7`, `1-240`, `1-240x2`, `1-100,150,200-300x5`.
//!
//! A range is inclusive, upwards, with an optional step; ranges follow one another and never overlap, so no frame is
//! named twice and a list has one order. Absent: what a frame costs (`estimate`), who renders which.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most frames of one list: nine hours at thirty a second.
pub const MAX_FRAMES: u64 = 1_000_000;
/// The largest number a frame may have.
pub const MAX_FRAME: u32 = 99_999_999;
const MAX_RANGES: usize = 256;
const MAX_TEXT: usize = 4096;

/// Why a text is not a list of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrames(pub String);

impl fmt::Display for BadFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFrames {}

fn bad<T>(why: impl Into<String>) -> Result<T, BadFrames> {
    Err(BadFrames(why.into()))
}

/// From `first` to `last`, every `step`-th. INVARIANT: `first <= last`, `step >= 1`, and one frame alone has a step of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Range {
    first: u32,
    last: u32,
    step: u32,
}

impl Range {
    fn new(first: u32, last: u32, step: u32) -> Range {
        let step = if first == last { 1 } else { step };
        Range { first, last, step }
    }

    fn count(self) -> u32 {
        (self.last - self.first) / self.step + 1
    }

    fn get(self, index: u32) -> u32 {
        self.first + index * self.step
    }

    /// The frames from the `from`-th on, `count` of them at most; ends with the last there is.
    fn part(self, from: u32, count: u32) -> Range {
        let last = self.get(from + count.min(self.count() - from) - 1);
        Range::new(self.get(from), last, self.step)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if self.last > self.first {
            write!(f, "-{}", self.last)?;
        }
        if self.last > self.first && self.step > 1 {
            write!(f, "x{}", self.step)?;
        }
        Ok(())
    }
}

/// A list of frames, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frames(Vec<Range>);

impl Frames {
    /// One frame alone.
    pub fn one(frame: u32) -> Frames {
        Frames(vec![Range::new(frame, frame, 1)])
    }

    /// How many frames there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.count())).sum()
    }

    /// The frame with the lowest number.
    pub fn first(&self) -> u32 {
        self.0[0].first
    }

    /// The frame with the highest number.
    pub fn last(&self) -> u32 {
        self.0[self.0.len() - 1].last
    }

    /// From one frame to the next, in the first range.
    pub fn step(&self) -> u32 {
        self.0[0].step
    }

    /// How many frames there are from the `from`-th on, counted from 0, to the end of the range it is in.
    pub fn left_in_range(&self, from: u64) -> u64 {
        let mut before = 0;
        for range in &self.0 {
            before += u64::from(range.count());
            if from < before {
                return before - from;
            }
        }
        0
    }

    /// All frames, upwards.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let frames = |range: &Range| {
            let range = *range;
            (0..range.count()).map(move |index| range.get(index))
        };
        self.0.iter().flat_map(frames)
    }

    pub fn contains(&self, frame: u32) -> bool {
        let within = |range: &&Range| (range.first..=range.last).contains(&frame);
        let range = self.0.iter().find(within);
        range.is_some_and(|range| (frame - range.first).is_multiple_of(range.step))
    }

    /// The frames from the `from`-th on, counted from 0, `count` of them at most; none where there are none.
    pub fn part(&self, from: u64, count: u64) -> Option<Frames> {
        let (mut skip, mut left) = (from, count);
        let mut parts = Vec::new();
        for range in &self.0 {
            let here = u64::from(range.count());
            if skip >= here {
                skip -= here;
                continue;
            }
            if left == 0 {
                break;
            }
            // INVARIANT: a range counts in 32 bits, so what is within it does.
            let part = range.part(skip as u32, left.min(here - skip) as u32);
            left -= u64::from(part.count());
            skip = 0;
            parts.push(part);
        }
        (!parts.is_empty()).then_some(Frames(parts))
    }

    /// The list in pieces of `size` frames each, the last with what remains. A size of zero counts as one.
    pub fn chunks(&self, size: u64) -> impl Iterator<Item = Frames> + '_ {
        let size = size.max(1);
        (0..self.count().div_ceil(size)).filter_map(move |number| self.part(number * size, size))
    }

    /// The list in `pieces` as equal as can be, fewer where there are fewer frames.
    pub fn split(&self, pieces: u64) -> impl Iterator<Item = Frames> + '_ {
        let count = self.count();
        let pieces = pieces.clamp(1, count);
        let start = move |number: u64| number * (count / pieces) + number.min(count % pieces);
        (0..pieces).filter_map(move |number| self.part(start(number), start(number + 1) - start(number)))
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            write!(f, "{range}")?;
        }
        Ok(())
    }
}

impl FromStr for Frames {
    type Err = BadFrames;

    fn from_str(text: &str) -> Result<Frames, BadFrames> {
        if text.is_empty() {
            return bad("no frames; write them as 1-240, 1-240x2 or 1-100,150");
        }
        if text.len() > MAX_TEXT {
            return bad(format!("a list of frames is at most {MAX_TEXT} bytes"));
        }
        let mut ranges: Vec<Range> = Vec::new();
        for piece in text.split(',') {
            let range = range(piece)?;
            if let Some(before) = ranges.last()
                && range.first <= before.last
            {
                return bad(format!(
                    "{range} comes after {before}; frames go upwards and ranges do not overlap"
                ));
            }
            if ranges.len() == MAX_RANGES {
                return bad(format!("a list of frames has at most {MAX_RANGES} ranges"));
            }
            ranges.push(range);
        }
        let frames = Frames(ranges);
        if frames.count() > MAX_FRAMES {
            return bad(format!(
                "{} frames; a job has at most {MAX_FRAMES}",
                frames.count()
            ));
        }
        Ok(frames)
    }
}

fn range(text: &str) -> Result<Range, BadFrames> {
    let (span, step) = match text.split_once('x') {
        Some((span, step)) => (span, Some(step)),
        None => (text, None),
    };
    let (first, last) = match span.split_once('-') {
        Some((first, last)) => (number(first, text)?, Some(number(last, text)?)),
        None => (number(span, text)?, None),
    };
    let step = step.map(|step| number(step, text)).transpose()?;
    match (last, step) {
        (Some(last), _) if last < first => bad(format!("{text} goes down; write {last}-{first}")),
        (None, Some(_)) => bad(format!("{text} has a step and no end; write it as 1-240x2")),
        (_, Some(0)) => bad(format!("{text} has a step of 0; the least is 1")),
        (last, step) => Ok(Range::new(first, last.unwrap_or(first), step.unwrap_or(1))),
    }
}

fn number(text: &str, within: &str) -> Result<u32, BadFrames> {
    // Signs and spaces, which `parse` would take or complain of in other words, are no digits.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return bad(format!(
            "'{within}' is not frames; write them as 7, 1-240 or 1-240x2, joined by ','"
        ));
    }
    match text.parse::<u32>() {
        Ok(number) if number <= MAX_FRAME => Ok(number),
        _ => bad(format!(
            "{text} is too large; frames are numbered up to {MAX_FRAME}"
        )),
    }
}

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Frames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
