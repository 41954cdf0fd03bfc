//! Queue order: which waiting job goes next.
//!
//! Each question is asked only where the one before leaves a tie: which priority class; has it waited past the stated
//! bound; is it within its nominal quotas; which scope, where the chains of two jobs part, used less for its weight; which
//! job completes soonest for the time spent; which came first. Absent: where a job fits (`place`), whether it may
//! run at all (`admit`), whom to evict (`victim`).

pub mod aged;
pub mod key;
pub mod lend;
pub mod outlook;
pub mod precede;
pub mod quota;
pub mod reclaim;
pub mod share;
pub mod standing;
pub mod walk;
