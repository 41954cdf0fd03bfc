//! The `tenure` command: the platform from a terminal, and `tenure up` to start it.
//!
//! One noun, one file, each with its arguments and what they do. Data goes to stdout, everything said about
//! it to stderr. Exit codes: 0 done, 1 the job failed, 2 bad usage or input, 3 refused, 4 no capacity,
//! 5 unreachable; `run` passes the job's own code through. Deliberately absent: decisions and limits; what
//! the server says is shown as it was said.

#![forbid(unsafe_code)]

mod apply;
mod args;
mod attach;
mod audit;
mod book;
mod budget;
mod cluster;
mod completion;
mod context;
mod cost;
mod demand;
mod doctor;
mod event;
mod exec;
mod fit;
mod follow;
mod gpu;
mod input;
mod invoice;
mod job;
mod journal;
mod keeping;
mod key;
mod login;
mod logs;
mod market;
mod moment;
mod node;
mod oidc;
mod output;
mod policy;
mod port;
mod price;
mod profile;
mod quota;
mod refusal;
mod resize;
mod resolve;
mod role;
mod rule;
mod run;
mod safe;
mod scale;
mod scope;
mod secret;
mod service;
mod session;
mod share;
mod sku;
mod spec_file;
mod table;
mod task;
mod terminal;
mod top;
mod units;
mod up;
mod volume;
mod webhook;
mod whoami;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::Cli;
use crate::context::Context;

fn main() -> ExitCode {
    // The provider is a fixed part of the program; a second installation is the only way this fails.
    let _ = rustls::crypto::ring::default_provider().install_default();
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stdout leaves nobody to tell.
            let _ = error.print();
            return ExitCode::from(error.exit_code().try_into().unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return refusal::Failure::Local(format!("no threads to run on: {error}")).report(false),
    };
    let colour = output::colours(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let done = runtime.block_on(async {
        let context = Context::new(cli.globals)?;
        cli.command.run(&context).await
    });
    // A read from a terminal or a pipe may still be waiting in a thread; it does not hold the exit up.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(colour),
    }
}
