//! Streams stay open for long, so each user has only so many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::http::header;
use tenure_domain::id::UserId;

use crate::http::fail::{Answer, Fail};

const MAX_PER_USER: u32 = 32;

/// Open streams by user.
#[derive(Default, Clone)]
pub(crate) struct Streams(Arc<Mutex<HashMap<UserId, u32>>>);

/// One open stream; dropped with it.
pub(crate) struct Seat {
    streams: Streams,
    user: UserId,
}

impl Streams {
    pub fn take(&self, user: UserId) -> Answer<Seat> {
        let mut open = self.0.lock().expect("short and without panics");
        let count = open.entry(user).or_default();
        if *count >= MAX_PER_USER {
            return Err(Fail::new(
                429,
                "too_many_requests",
                format!("the user has {MAX_PER_USER} streams open already"),
            )
            .hint("close some")
            .header(header::RETRY_AFTER, "10"));
        }
        *count += 1;
        Ok(Seat {
            streams: self.clone(),
            user,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().expect("short and without panics");
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}
