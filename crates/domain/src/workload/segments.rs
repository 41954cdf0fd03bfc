//! A clip cut into segments of equal length, the last with what remains.
//!
//! Times are whole seconds from the clip's beginning. Absent: what a segment costs (`estimate`), who works on which.

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// The most segments of one clip.
pub const MAX_SEGMENTS: u64 = 100_000;
/// The longest clip: thirty days.
const MAX_DURATION_S: u64 = 30 * 24 * 3600;

/// A clip's length, and that of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Segments {
    pub duration_s: u64,
    /// Seconds of each segment.
    #[serde(default = "default_segment_s")]
    pub segment_s: u64,
}

fn default_segment_s() -> u64 {
    300
}

/// One segment, from the beginning of the clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub start_s: u64,
    pub end_s: u64,
}

impl Segments {
    pub fn check(&self, field: &'static str) -> Result<(), Refusal> {
        if self.duration_s == 0 || self.duration_s > MAX_DURATION_S {
            return Err(Refusal::invalid(
                format!("{field}/duration_s"),
                format!("a clip is 1 to {MAX_DURATION_S} seconds long"),
            ));
        }
        if self.segment_s == 0 {
            return Err(Refusal::invalid(
                format!("{field}/segment_s"),
                "a segment is at least 1 second long",
            ));
        }
        if self.count() > MAX_SEGMENTS {
            return Err(Refusal::invalid(
                format!("{field}/segment_s"),
                format!("{} segments; a clip has at most {MAX_SEGMENTS}", self.count()),
            ));
        }
        Ok(())
    }

    pub fn count(&self) -> u64 {
        self.duration_s.div_ceil(self.segment_s.max(1))
    }

    /// The segment with this number, counted from 0.
    pub fn get(&self, number: u64) -> Option<Segment> {
        let start_s = number.checked_mul(self.segment_s)?;
        (start_s < self.duration_s).then(|| Segment {
            start_s,
            end_s: self.duration_s.min(start_s + self.segment_s),
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        (0..self.count()).filter_map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_minutes_are_eighteen_times_five() {
        let clip = Segments {
            duration_s: 5400,
            segment_s: 300,
        };
        assert_eq!((clip.check("/c"), clip.count()), (Ok(()), 18));
        let uneven = Segments {
            duration_s: 5401,
            ..clip
        };
        let all: Vec<Segment> = uneven.iter().collect();
        assert_eq!(all.len(), 19);
        assert_eq!((all[18].start_s, all[18].end_s), (5400, 5401));
        assert!(all.windows(2).all(|two| two[0].end_s == two[1].start_s));
        assert_eq!(uneven.get(19), None);
        assert_eq!(uneven.get(u64::MAX), None);
    }

    #[test]
    fn a_clip_has_a_length_and_not_too_many_pieces() {
        for (duration_s, segment_s) in [(0, 300), (10, 0), (MAX_DURATION_S + 1, 300), (200_000, 1)] {
            let clip = Segments {
                duration_s,
                segment_s,
            };
            assert!(clip.check("/c").is_err(), "{clip:?}");
        }
    }
}
