//! Members: a job has one for each node it asked for, each with an allocation of its own. Most jobs have one.
//!
//! All members are placed together, and the job is at no point alive in part: when one ends other than well, the rest
//! is stopped. A member that ended well gives its place back and waits for nobody. Absent: what ends the job
//! (`decide/member`).

use serde::{Deserialize, Serialize};

use super::job::StopReason;
use crate::id::{AllocationId, NodeId};

/// How far one member has come in this attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberPhase {
    Placed,
    Starting,
    Running,
    Ended,
}

impl MemberPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            MemberPhase::Placed => "placed",
            MemberPhase::Starting => "starting",
            MemberPhase::Running => "running",
            MemberPhase::Ended => "ended",
        }
    }
}

/// How one member's part in an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum MemberEnd {
    Exited {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Who ended it, where it was not the member itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<StopReason>,
    },
    NotStarted {
        why: String,
    },
    /// Its node was lost, or no longer knows of it.
    Lost {
        why: String,
    },
}

impl MemberEnd {
    pub fn is_success(&self) -> bool {
        matches!(
            self,
            MemberEnd::Exited {
                exit_code: Some(0),
                by: None,
                ..
            }
        )
    }
}

/// One member of a job's current attempt. Its number is its place in the job's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub allocation: AllocationId,
    pub node: NodeId,
    pub phase: MemberPhase,
    /// Run time that was metered of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ran_ms: u64,
    /// How it ended, once it has while others go on; its allocation is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<MemberEnd>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Member {
    pub fn new(allocation: AllocationId, node: NodeId) -> Member {
        Member {
            allocation,
            node,
            phase: MemberPhase::Placed,
            ran_ms: 0,
            end: None,
        }
    }

    /// Whether it has its allocation still.
    pub fn is_living(&self) -> bool {
        self.end.is_none()
    }
}

/// All that were not as far are, now.
pub(crate) fn advance(members: &mut [Member], phase: MemberPhase) {
    let behind = members.iter_mut().filter(|member| member.phase < phase);
    behind.for_each(|member| member.phase = phase);
}

/// How much longer the job ran, now that one of its allocations ran for `to_ms`: members run beside one another, so the
/// longest counts.
pub(crate) fn longer_ms(members: &mut [Member], allocation: AllocationId, to_ms: u64) -> u64 {
    let longest = |members: &[Member]| members.iter().map(|member| member.ran_ms).max().unwrap_or(0);
    let before = longest(members);
    if let Some(member) = members.iter_mut().find(|member| member.allocation == allocation) {
        member.ran_ms = to_ms;
    }
    longest(members) - before
}
