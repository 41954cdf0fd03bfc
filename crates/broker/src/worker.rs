//! The worker as a whole: opens the driver, then serves whoever connects, each on threads of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use tenure_wire::Listener;

use crate::connection::{self, Connection};
use crate::control;
use crate::driver;
use crate::object::lock;
use crate::print;
use crate::store::Spill;

pub struct Settings {
    pub listener: Listener,
    /// Where the agent speaks to the worker.
    pub control: Option<Listener>,
    /// How much bulk memory all connections together may have.
    pub bulk_bytes: u64,
    /// The file that the bytes of a slice set aside go to; in memory, if there is none.
    pub spill: Option<PathBuf>,
}

/// What all connections share.
pub struct World {
    /// Held for reading by every call, for writing while the slice is set aside or taken up.
    running: RwLock<()>,
    pub suspended: AtomicBool,
    resumed: (Mutex<()>, Condvar),
    living: Mutex<Vec<Weak<Connection>>>,
    pub bulk_used: AtomicU64,
    pub bulk_most: u64,
    pub spill: Option<Arc<Spill>>,
}

impl World {
    pub fn new(bulk_most: u64, spill: Option<Arc<Spill>>) -> World {
        World {
            running: RwLock::new(()),
            suspended: AtomicBool::new(false),
            resumed: Default::default(),
            living: Mutex::default(),
            bulk_used: AtomicU64::new(0),
            bulk_most,
            spill,
        }
    }

    /// Waits until calls may go to the driver. None: the caller's connection ended meanwhile.
    pub fn enter(&self, here: &Connection) -> Option<RwLockReadGuard<'_, ()>> {
        loop {
            let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
            if !self.suspended.load(SeqCst) {
                return Some(running);
            }
            drop(running);
            if here.is_closed() {
                return None;
            }
            let waiting = lock(&self.resumed.0);
            if self.suspended.load(SeqCst) {
                let _ = self.resumed.1.wait_timeout(waiting, Duration::from_millis(100));
            }
        }
    }

    /// Keeps the slice from being set aside or taken up, whichever it is now.
    pub fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop_calls(&self) -> RwLockWriteGuard<'_, ()> {
        self.running.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn calls_go_on(&self) {
        drop(lock(&self.resumed.0));
        self.resumed.1.notify_all();
    }

    /// The connections that live.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let mut living = lock(&self.living);
        living.retain(|connection| connection.strong_count() > 0);
        living.iter().filter_map(Weak::upgrade).collect()
    }

    pub fn add(&self, connection: &Arc<Connection>) {
        lock(&self.living).push(Arc::downgrade(connection));
    }
}

/// The most connections at once: processes of one job.
const CONNECTIONS_MOST: usize = 256;

/// Serves until the socket fails.
pub fn run(settings: Settings) -> Result<(), String> {
    print::capture().map_err(|error| error.to_string())?;
    driver::open()?;
    let spill = settings.spill.as_deref().map(Spill::open).transpose();
    let spill = spill.map_err(|error| format!("the file for what is set aside: {error}"))?;
    let world = Arc::new(World::new(settings.bulk_bytes, spill));
    if let Some(listener) = settings.control {
        let world = world.clone();
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || control::serve(&world, &listener))
            .map_err(|error| error.to_string())?;
    }
    let served = Arc::new(());
    loop {
        let socket = settings.listener.accept().map_err(|error| error.to_string())?;
        if Arc::strong_count(&served) > CONNECTIONS_MOST {
            continue;
        }
        let (world, served) = (world.clone(), served.clone());
        let started = std::thread::Builder::new()
            .name("connection".into())
            .spawn(move || {
                connection::serve(world, socket);
                drop(served);
            });
        if let Err(error) = started {
            eprintln!("tenure-broker: a connection was not served: {error}");
        }
    }
}
