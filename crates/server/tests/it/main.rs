//! The server over real HTTP, each test with its own platform on its own port.

mod authorization;
mod bad_input;
mod booking;
mod error_page;
mod etag;
mod event;
mod fit;
mod gang;
mod gpu;
mod idempotency;
mod login;
mod route;
mod secret;
mod service;
mod session;
mod task;
mod throttle;
mod volume;
mod world;
