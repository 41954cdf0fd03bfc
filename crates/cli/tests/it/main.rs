//! The command as users run it, without a server or against one of canned answers.

mod bad_input;
mod book;
mod fit;
mod gpu;
mod invoice;
mod server;
mod stub;
mod tenure;
mod terminal;
mod webhook;
