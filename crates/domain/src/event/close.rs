//! Why a window of a booking is over.

use serde::{Deserialize, Serialize};

/// Why a window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    Over,
    /// Nobody came, and the rest was given up.
    NoShow,
    /// It could not be given at all.
    NotHad,
}
