//! The ring and the messages between a tenant's program and its broker.
//!
//! Each side treats what the other wrote as hostile: positions and lengths are copied out once and checked, and no
//! reference is ever made to memory the other side can write. The broker's side makes all shared memory, sealed, so
//! that nobody can take it away under the other. Deliberately absent: any vendor's API types, and what a call means;
//! here a call is a number and a list of integers, ids and bytes. Used by `remote` on the tenant's side and `broker`
//! on the other.

#![deny(unsafe_op_in_unsafe_fn)]

mod channel;
mod codec;
mod futex;
mod handshake;
mod memory;
mod message;
mod ring;
mod slot;
mod socket;
mod spin;

pub use channel::{BrokerSide, CHANNEL_BYTES, Frame, Notice, TenantSide};
pub use codec::{Field, Malformed, Reader};
pub use handshake::{Greeting, VERSION, Wanted};
pub use memory::{Shared, Span};
pub use message::{Argument, ArgumentKind, Id, Order, Request, Subject};
pub use ring::{FRAME_MOST, NO_SLOT};
pub use slot::{REPLY_MOST, SLOTS};
pub use socket::{Listener, Socket};
