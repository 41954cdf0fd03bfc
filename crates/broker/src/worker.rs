//! The worker as a whole: opens the driver, then serves whoever connects, each on threads of its own.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};

use tenure_wire::Listener;

use crate::connection;
use crate::driver;
use crate::print;

pub struct Settings {
    pub listener: Listener,
    /// How much bulk memory all connections together may have.
    pub bulk_bytes: u64,
}

/// What all connections share.
pub struct World {
    /// Held for reading by every call; for writing while the slice is set aside.
    pub running: RwLock<()>,
    pub bulk_used: AtomicU64,
    pub bulk_most: u64,
}

/// The most connections at once: processes of one job.
const CONNECTIONS_MOST: usize = 256;

/// Serves until the socket fails.
pub fn run(settings: Settings) -> Result<(), String> {
    print::capture().map_err(|error| error.to_string())?;
    driver::open()?;
    let world = Arc::new(World {
        running: RwLock::new(()),
        bulk_used: AtomicU64::new(0),
        bulk_most: settings.bulk_bytes,
    });
    let living = Arc::new(());
    loop {
        let socket = settings.listener.accept().map_err(|error| error.to_string())?;
        if Arc::strong_count(&living) > CONNECTIONS_MOST {
            continue;
        }
        let (world, living) = (world.clone(), living.clone());
        let started = std::thread::Builder::new()
            .name("connection".into())
            .spawn(move || {
                connection::serve(world, socket);
                drop(living);
            });
        if let Err(error) = started {
            eprintln!("tenure-broker: a connection was not served: {error}");
        }
    }
}
