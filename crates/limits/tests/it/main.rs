//! The limits page under several processes, killed, stopped and forked; and its reader under any content.

mod hostile;
mod kill;
mod lease;
mod slice;
mod worker;
