//! The objects of one connection by id. A use names place, generation and kind; only an exact match is found.

use std::sync::{Arc, Mutex};

use tenure_wire::Id;

use crate::abi::{
    INVALID_COMMAND_QUEUE, INVALID_CONTEXT, INVALID_EVENT, INVALID_KERNEL, INVALID_MEM_OBJECT,
    INVALID_PROGRAM, INVALID_SAMPLER,
};
use crate::fault::Fault;
use crate::object::{Context, Event, Kernel, Memory, Object, Program, Queue, Sampler, lock};

/// The most objects of one connection.
pub const OBJECTS_MOST: u32 = 1 << 20;

#[derive(Default)]
pub struct Table(Mutex<Vec<Option<(u32, Object)>>>);

fn is_free(table: &[Option<(u32, Object)>], id: Id) -> Result<(), Fault> {
    if id.place >= OBJECTS_MOST || table.get(id.place as usize).is_some_and(Option::is_some) {
        return Err(Fault::Broken);
    }
    Ok(())
}

macro_rules! finders {
    ($($name:ident $kind:ident $code:ident;)*) => {$(
        pub fn $name(&self, id: Id) -> Result<Arc<$kind>, Fault> {
            match self.find(id) {
                Some(Object::$kind(object)) => Ok(object),
                _ => Err(Fault::Code($code)),
            }
        }
    )*};
}

impl Table {
    /// Whether an object may be put at `id`: the place is within bounds and free.
    pub fn free(&self, id: Id) -> Result<(), Fault> {
        is_free(&lock(&self.0), id)
    }

    /// Puts an object at a place that is free; a helper may have put another there since that was asked.
    pub fn put(&self, id: Id, object: Object) -> Result<(), Fault> {
        let mut table = lock(&self.0);
        is_free(&table, id)?;
        let place = id.place as usize;
        if table.len() <= place {
            table.resize_with((place + 1).next_power_of_two(), || None);
        }
        table[place] = Some((id.generation, object));
        Ok(())
    }

    pub fn find(&self, id: Id) -> Option<Object> {
        match lock(&self.0).get(id.place as usize) {
            Some(Some((generation, object))) if *generation == id.generation => Some(object.clone()),
            _ => None,
        }
    }

    pub fn take(&self, id: Id) -> Option<Object> {
        let mut table = lock(&self.0);
        let entry = table.get_mut(id.place as usize)?;
        match entry {
            Some((generation, _)) if *generation == id.generation => entry.take().map(|(_, object)| object),
            _ => None,
        }
    }

    /// All that is there.
    pub fn all(&self) -> Vec<Object> {
        lock(&self.0)
            .iter()
            .flatten()
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub fn clear(&self) -> Vec<Object> {
        std::mem::take(&mut *lock(&self.0))
            .into_iter()
            .flatten()
            .map(|(_, object)| object)
            .collect()
    }

    finders! {
        context Context INVALID_CONTEXT;
        queue Queue INVALID_COMMAND_QUEUE;
        memory Memory INVALID_MEM_OBJECT;
        sampler Sampler INVALID_SAMPLER;
        program Program INVALID_PROGRAM;
        kernel Kernel INVALID_KERNEL;
        event Event INVALID_EVENT;
    }
}
