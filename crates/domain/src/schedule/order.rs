//! Queue order: which waiting job goes next.
//!
//! Four questions, each asked only where the one before leaves a tie: which priority class; has it waited past the
//! stated bound; is its tenant within its nominal quota, and if not, how far above its fair share; and within a
//! tenant, which job completes soonest for the time spent. Pure functions over small inputs. Absent: where a job
//! fits (`place`), whether it may run at all (`admit`), whom to evict (`victim`).

pub mod key;
pub mod quota;
pub mod share;
