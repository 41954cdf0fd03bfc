//! The agent's side of a page: making it, putting slices on it, resizing, pausing, ending and removing them, reaping.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::clock::now_ns;
use crate::error::Error;
use crate::fair::later;
use crate::layout::{ENDED, LIVE, PAGE_SIZE, PAUSED, SLICES, Slice};
use crate::map::{Map, length, write_again};
use crate::reap::{Seat, belongs, recount};
use crate::snapshot::{Reader, Snapshot};

/// The agent waits no longer than this for a slice's ledger: a stopped tenant must not stop it.
const PATIENCE: Duration = Duration::from_millis(100);

/// One physical device's page, held by the agent (or a test in its place).
pub struct Device {
    seat: Seat,
    reader: Reader,
    /// The table of slices has one writer at a time within the agent; there is one agent.
    table: Mutex<()>,
}

/// What a slice may use. Numbers only; who decided them is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// Not zero; unique on the device.
    pub id: u64,
    pub limit_bytes: u64,
    /// Share against the other slices that want the device, 1 to 1000.
    pub weight_per_mille: u32,
    /// Never more of the device than this, even alone.
    pub cap_per_mille: Option<u32>,
    /// The longest one kernel may run before its process is ended.
    pub kernel_limit_ns: Option<u64>,
    /// The device time one process may use before it is ended.
    pub process_limit_ns: Option<u64>,
}

/// What a resize found. Over its new limit a slice keeps what it has and gets nothing more until it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub limit_bytes: u64,
    pub used_bytes: u64,
}

impl Fit {
    pub fn fits(&self) -> bool {
        self.used_bytes <= self.limit_bytes
    }
}

impl Device {
    /// Makes the page of a device; fails if one stands at `path`.
    pub fn create(path: &Path) -> Result<Device, Error> {
        Device::over(Map::create(path)?, path)
    }

    /// Takes up a page made earlier, slices and processes on it included.
    pub fn open(path: &Path) -> Result<Device, Error> {
        Device::over(Map::open(path)?, path)
    }

    /// The same, of a page whose length or whose word of itself somebody changed; both are written again first.
    pub fn open_mended(path: &Path) -> Result<Device, Error> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| Error::Io("open the limits page", error))?;
        write_again(file.as_raw_fd());
        Device::open(path)
    }

    fn over(map: Map, path: &Path) -> Result<Device, Error> {
        let seat = Seat::claim_agents(map)?;
        // LIVE keeps the place; NO_SLICE keeps it out of every sum.
        seat.slot().state.store(LIVE, Release);
        Ok(Device {
            seat,
            reader: Reader::open(path)?,
            table: Mutex::new(()),
        })
    }

    /// Puts a slice on the device.
    pub fn add(&self, spec: SliceSpec) -> Result<(), Error> {
        let _table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        self.whole()?;
        if spec.id == 0 {
            return Err(Error::NoSlice(0));
        }
        if self.seat.find(spec.id).is_ok() {
            return Err(Error::Exists(spec.id));
        }
        let page = self.seat.page();
        let slice = page
            .slices
            .iter()
            .find(|slice| slice.id.load(Acquire) == 0)
            .ok_or(Error::Full("slice"))?;
        slice.flags.store(0, Relaxed);
        slice.limit_bytes.store(spec.limit_bytes, Relaxed);
        set_share(slice, spec.weight_per_mille, spec.cap_per_mille);
        slice
            .kernel_limit_ns
            .store(spec.kernel_limit_ns.unwrap_or(0), Relaxed);
        slice
            .process_limit_ns
            .store(spec.process_limit_ns.unwrap_or(0), Relaxed);
        slice.used_bytes.store(0, Relaxed);
        slice.peak_bytes.store(0, Relaxed);
        slice
            .tag
            .0
            .store(page.header.virtual_now.0.load(Relaxed), Relaxed);
        slice.bucket.store(now_ns(), Relaxed);
        slice.fold_stage.store(0, Relaxed);
        for total in &slice.totals {
            total.store(0, Relaxed);
        }
        crate::kernel::clear(slice);
        slice.id.store(spec.id, Release);
        Ok(())
    }

    /// Changes a slice's size, up or down, while it runs.
    pub fn resize(&self, id: u64, limit_bytes: u64) -> Result<Fit, Error> {
        let (index, slice) = self.slice(id)?;
        slice.limit_bytes.store(limit_bytes, Release);
        // What the dead still seem to use would make the answer worse than it is.
        let used_bytes = self
            .seat
            .in_slice(index, PATIENCE, || {
                self.seat.reap_locked(index);
                recount(self.seat.page(), index)
            })
            .unwrap_or_else(|_| slice.used_bytes.load(Relaxed));
        Ok(Fit {
            limit_bytes,
            used_bytes,
        })
    }

    /// Changes a slice's share and cap while it runs.
    pub fn reshare(&self, id: u64, weight_per_mille: u32, cap_per_mille: Option<u32>) -> Result<(), Error> {
        let (_, slice) = self.slice(id)?;
        slice.bucket.store(now_ns(), Relaxed);
        self.forget_waiting(slice);
        set_share(slice, weight_per_mille, cap_per_mille);
        Ok(())
    }

    /// Changes the time limits of a slice while it runs.
    pub fn set_time_limits(
        &self,
        id: u64,
        kernel_limit_ns: Option<u64>,
        process_limit_ns: Option<u64>,
    ) -> Result<(), Error> {
        let (_, slice) = self.slice(id)?;
        slice.kernel_limit_ns.store(kernel_limit_ns.unwrap_or(0), Relaxed);
        slice
            .process_limit_ns
            .store(process_limit_ns.unwrap_or(0), Relaxed);
        Ok(())
    }

    /// Holds back a slice's launches, or lets them go on.
    pub fn pause(&self, id: u64, paused: bool) -> Result<(), Error> {
        let (_, slice) = self.slice(id)?;
        match paused {
            true => slice.flags.fetch_or(PAUSED, Release),
            false => {
                self.forget_waiting(slice);
                slice.flags.fetch_and(!PAUSED, Release)
            }
        };
        Ok(())
    }

    /// Time spent waiting for its own cap or pause gives a slice no claim on the others.
    fn forget_waiting(&self, slice: &Slice) {
        let now = self.seat.page().header.virtual_now.0.load(Relaxed);
        let _ = slice
            .tag
            .0
            .fetch_update(Relaxed, Relaxed, |tag| Some(later(tag, now)));
    }

    /// Ends a slice: no allocation and no launch succeeds any more. Its counters stay until it is removed.
    pub fn end(&self, id: u64) -> Result<(), Error> {
        let (_, slice) = self.slice(id)?;
        slice.flags.fetch_or(ENDED, Release);
        Ok(())
    }

    /// Takes an unused slice off the device; refuses while processes of it live.
    pub fn remove(&self, id: u64) -> Result<(), Error> {
        let _table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, slice) = self.slice(id)?;
        self.seat.in_slice(index, PATIENCE, || {
            self.seat.reap_locked(index);
            let slots = &self.seat.page().slots;
            let live = slots.iter().filter(|slot| belongs(slot, index)).count() as u32;
            if live > 0 {
                return Err(Error::InUse { live });
            }
            slice.id.store(0, Release);
            slice.epoch.fetch_add(1, Release);
            Ok(())
        })?
    }

    /// Drops what dead processes left on every slice. Slices whose ledger is stuck are left for the next call.
    pub fn reap(&self) -> usize {
        if self.whole().is_err() {
            return 0;
        }
        self.seat.sit_firmly();
        let page = self.seat.page();
        let mut reaped = 0;
        for index in 0..SLICES {
            if page.slices[index].id.load(Acquire) == 0 || !page.slots.iter().any(|slot| belongs(slot, index))
            {
                continue;
            }
            let here = self
                .seat
                .in_slice(index, PATIENCE, || self.seat.reap_locked(index));
            reaped += here.unwrap_or(0);
        }
        reaped
    }

    /// The sum of a slice's live slots, taken while its ledger stands still: what an auditor compares with the limit.
    pub fn audit_bytes(&self, id: u64) -> Result<u64, Error> {
        let (index, _) = self.slice(id)?;
        let slots = &self.seat.page().slots;
        self.seat.in_slice(index, PATIENCE, || {
            slots
                .iter()
                .filter(|slot| belongs(slot, index))
                .fold(0u64, |sum, slot| sum.saturating_add(slot.bytes.load(Relaxed)))
        })
    }

    /// Writes again what every page says of itself and how long it is, where somebody changed that. What else was damaged
    /// stays so, and where `is_lost` the page is to be opened again.
    pub fn mend(&self) {
        write_again(self.seat.locks.fd());
    }

    /// Whether the file is as long as a page: a longer one takes memory that nobody limits.
    pub fn has_its_length(&self) -> bool {
        length(self.seat.locks.fd()) == Some(PAGE_SIZE as u64)
    }

    /// Whether this handle no longer reaches the file, for it was cut short while in use.
    pub fn is_lost(&self) -> bool {
        self.seat.map.is_lost()
    }

    /// All counters of all slices.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.reader.snapshot()
    }

    fn slice(&self, id: u64) -> Result<(usize, &Slice), Error> {
        self.whole()?;
        let (index, _) = self.seat.find(id)?;
        Ok((index, &self.seat.page().slices[index]))
    }

    fn whole(&self) -> Result<(), Error> {
        match self.seat.map.whole(self.seat.locks.fd()) {
            true => Ok(()),
            false => Err(Error::NotAPage("the file was cut short")),
        }
    }
}

fn set_share(slice: &Slice, weight_per_mille: u32, cap_per_mille: Option<u32>) {
    slice
        .weight_per_mille
        .store(weight_per_mille.clamp(1, 1000), Relaxed);
    slice
        .cap_per_mille
        .store(cap_per_mille.map_or(0, |cap| cap.clamp(1, 1000)), Relaxed);
}
