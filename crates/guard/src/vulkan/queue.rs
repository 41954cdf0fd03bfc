//! The queue that zeroing works on: one more than the program asked for, where the device has one more to give. Else
//! it is one of the program's, which zeroing then shares with it.

use super::abi::{Handle, QueueCreateInfo};

/// `VkQueueFamilyProperties`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Family {
    pub flags: u32,
    pub count: u32,
    pub timestamp_bits: u32,
    pub granularity: [u32; 3],
}

pub type GetFamilies = unsafe extern "system" fn(Handle, *mut u32, *mut Family);

/// Graphics, compute or transfer: each can fill a buffer.
const FILLS: u32 = 1 | 2 | 4;

/// Which queue is for zeroing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub family: u32,
    pub index: u32,
    /// The program has it too.
    pub shared: bool,
}

/// The queues a device is made with.
pub struct Queues {
    pub wanted: Vec<QueueCreateInfo>,
    pub place: Option<Place>,
    /// Owned for as long as `wanted` points there.
    _priorities: Vec<f32>,
}

/// # Safety
/// Every list of priorities is as long as its queues are many.
pub unsafe fn choose(asked: &[QueueCreateInfo], families: &[Family]) -> Queues {
    let mut wanted = asked.to_vec();
    let fills = |queues: &QueueCreateInfo| {
        // Queues with flags are protected ones, which write protected memory only.
        let family = families.get(queues.family as usize).copied().unwrap_or_default();
        (queues.flags == 0 && family.flags & FILLS != 0).then_some(family)
    };
    let spare = wanted.iter_mut().find(|queues| {
        fills(queues).is_some_and(|family| queues.count < family.count) && queues.head.next.is_null()
    });
    let mut priorities = Vec::new();
    let place = match spare {
        Some(queues) => {
            if !queues.priorities.is_null() {
                // SAFETY: as promised.
                priorities.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(queues.priorities, queues.count as usize)
                });
            }
            priorities.resize(queues.count as usize + 1, 0.0);
            queues.priorities = priorities.as_ptr();
            queues.count += 1;
            Some(Place {
                family: queues.family,
                index: queues.count - 1,
                shared: false,
            })
        }
        None => wanted
            .iter()
            .find(|queues| fills(queues).is_some())
            .map(|queues| Place {
                family: queues.family,
                index: 0,
                shared: true,
            }),
    };
    Queues {
        wanted,
        place,
        _priorities: priorities,
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::head;
    use super::*;

    fn asked(family: u32, flags: u32, priorities: &[f32]) -> QueueCreateInfo {
        QueueCreateInfo {
            head: head(2),
            flags,
            family,
            count: priorities.len() as u32,
            priorities: priorities.as_ptr(),
        }
    }

    fn family(flags: u32, count: u32) -> Family {
        Family {
            flags,
            count,
            ..Family::default()
        }
    }

    #[test]
    fn a_spare_queue_is_taken_and_the_programs_stay_as_they_are() {
        let (one, two) = ([0.25], [1.0, 0.5]);
        let families = [family(1, 1), family(2, 4)];
        // SAFETY: lists as long as they say.
        let queues = unsafe { choose(&[asked(0, 0, &one), asked(1, 0, &two)], &families) };
        let ours = Place {
            family: 1,
            index: 2,
            shared: false,
        };
        assert_eq!(queues.place, Some(ours));
        assert_eq!((queues.wanted[0].count, queues.wanted[1].count), (1, 3));
        // SAFETY: made just now, and so long.
        let priorities = unsafe { std::slice::from_raw_parts(queues.wanted[1].priorities, 3) };
        assert_eq!(priorities, [1.0, 0.5, 0.0]);
    }

    #[test]
    fn without_a_spare_one_it_is_shared_and_protected_ones_are_left_alone() {
        let one = [1.0];
        // SAFETY: lists as long as they say.
        let queues = unsafe {
            choose(
                &[asked(0, 1, &one), asked(1, 0, &one)],
                &[family(7, 8), family(7, 1)],
            )
        };
        assert_eq!(
            queues.place.map(|place| (place.family, place.shared)),
            Some((1, true))
        );
        // SAFETY: as above.
        let none = unsafe { choose(&[asked(0, 0, &one)], &[family(32, 4)]) };
        assert_eq!(none.place, None, "video queues fill nothing");
    }
}
