//! Objects as a program holds them: an address whose first word is the dispatch table, behind it what kind it is, the
//! program's references, and our own part.
//!
//! The program's references together hold one of ours; other objects that need this one hold their own. So an object
//! lives as the specification says, and its last holder tells the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::abi::Handle;
use crate::table::{Entry, table};

/// A kind of object.
pub trait Kind: Send + Sync + 'static {
    /// Tells the kinds apart; kept in each object.
    const MARK: u32;
    /// The code for a handle that is none of this kind.
    const INVALID: i32;
}

#[repr(C)]
pub struct Object<T> {
    dispatch: *const Entry,
    mark: u32,
    references: AtomicU32,
    pub body: T,
}

// SAFETY: the table's address is constant; the body may be shared by itself.
unsafe impl<T: Send> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Object<T> {}

impl<T> std::ops::Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T: Kind> Object<T> {
    pub fn new(body: T) -> Arc<Object<T>> {
        Arc::new(Object {
            dispatch: table(),
            mark: T::MARK,
            references: AtomicU32::new(1),
            body,
        })
    }

    /// Gives an object out to the program, which has one reference then.
    pub fn give(object: Arc<Object<T>>) -> Handle {
        Arc::into_raw(object).cast_mut().cast()
    }

    /// The handle of an object that was given out.
    pub fn handle(&self) -> Handle {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn references(&self) -> u32 {
        self.references.load(SeqCst)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        self.mark = 0;
    }
}

/// What a handle stands for.
///
/// # Safety
/// The handle is null or an OpenCL object that was not given up.
pub unsafe fn get<'a, T: Kind>(handle: Handle) -> Result<&'a Object<T>, i32> {
    let object = handle.cast::<Object<T>>();
    if object.is_null() || !object.is_aligned() {
        return Err(T::INVALID);
    }
    // SAFETY: every OpenCL object is at least as long as the head, and every one of ours carries its mark.
    unsafe {
        if (&raw const (*object).mark).read() != T::MARK {
            return Err(T::INVALID);
        }
        Ok(&*object)
    }
}

/// The same with a hold of our own on it.
///
/// # Safety
/// As for [`get`].
pub unsafe fn hold<T: Kind>(handle: Handle) -> Result<Arc<Object<T>>, i32> {
    // SAFETY: as promised; an object given out is held by an Arc.
    unsafe {
        let object = get::<T>(handle)?;
        Arc::increment_strong_count(object);
        Ok(Arc::from_raw(object))
    }
}

/// The program takes one more reference.
///
/// # Safety
/// As for [`get`].
pub unsafe fn retain<T: Kind>(handle: Handle) -> Result<(), i32> {
    // SAFETY: as promised.
    let object = unsafe { get::<T>(handle)? };
    object.references.fetch_add(1, SeqCst);
    Ok(())
}

/// The program gives up a reference; with the last goes its hold. True: that was the last.
///
/// # Safety
/// As for [`get`].
pub unsafe fn release<T: Kind>(handle: Handle) -> Result<Option<Arc<Object<T>>>, i32> {
    // SAFETY: as promised; the program's hold is taken back once, by whoever takes the count to nothing.
    unsafe {
        let object = get::<T>(handle)?;
        let before = object
            .references
            .fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1))
            .map_err(|_| T::INVALID)?;
        Ok((before == 1).then(|| Arc::from_raw(std::ptr::from_ref(object))))
    }
}
