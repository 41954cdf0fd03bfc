//! The wire from outside: messages that come back as they went, bytes that are none, and rings under hostile hands.

mod codec;
mod ring;
