//! What the guard knows of the program's objects, by their handle.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

type Handle = *mut std::ffi::c_void;

/// Handles are addresses, spread well enough by one multiplication.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(20);
    }
}

type Objects<T> = HashMap<usize, Arc<T>, BuildHasherDefault<AddressHasher>>;

pub struct Registry<T>(RwLock<Objects<T>>);

impl<T> Registry<T> {
    pub const fn new() -> Registry<T> {
        Registry(RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())))
    }

    pub fn get(&self, handle: Handle) -> Option<Arc<T>> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&(handle as usize)).cloned()
    }

    pub fn set(&self, handle: Handle, value: T) -> Arc<T> {
        let value = Arc::new(value);
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(handle as usize, value.clone());
        value
    }

    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&(handle as usize))
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().cloned().collect()
    }
}
