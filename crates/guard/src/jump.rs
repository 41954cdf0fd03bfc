//! Standing in the place of a whole library: one exported stub for each of its names, which jumps through a table.
//!
//! A stub touches no argument and makes no frame, so whatever is passed, however many and of whatever kind, reaches
//! the library as it was. The table is filled at the first call: until then every entry leads to a routine that keeps
//! the arguments, has the table filled, and goes on as if nothing had been. So the same file may be loaded for another
//! front's sake without any library being looked for.
//!
//! Deliberately absent: what any name means. Used by `cuda` and `nvml`, whose names are in their `names.txt`.

use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the stubs are written for x86-64");

/// The address of a function.
pub type Entry = *const c_void;

/// A name and the function of ours that stands for it.
pub struct Hook(pub &'static str, pub Entry);

// SAFETY: the address of a function.
unsafe impl Sync for Hook {}

pub type Slot = AtomicPtr<c_void>;

/// Where a name stands in a sorted list.
pub const fn place(names: &[&str], name: &str) -> usize {
    let (mut low, mut high) = (0, names.len());
    while low < high {
        let middle = (low + high) / 2;
        match compare(names[middle].as_bytes(), name.as_bytes()) {
            0 => return middle,
            1 => high = middle,
            _ => low = middle + 1,
        }
    }
    panic!("the name is not in the list")
}

/// 0: equal, 1: `a` is behind `b`, 2: before it.
const fn compare(a: &[u8], b: &[u8]) -> u8 {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return if a[at] > b[at] { 1 } else { 2 };
        }
        at += 1;
    }
    match (a.len() > at, b.len() > at) {
        (false, false) => 0,
        (true, _) => 1,
        _ => 2,
    }
}

/// Makes the stubs of a list, its `TABLE`, and the routine that has it filled by the module's `fill`.
macro_rules! stubs {
    ($($place:literal $name:ident;)*) => {
        /// Where each stub jumps to.
        pub static TABLE: [$crate::jump::Slot; NAMES.len()] =
            [const { $crate::jump::Slot::new(first_call as *mut std::ffi::c_void) }; NAMES.len()];

        extern "C" fn fill_the_table() {
            super::fill();
        }

        /// Keeps every register that may carry an argument, has the table filled, and jumps where it now leads. The
        /// stub left its place in r11, which callers of C functions expect to lose.
        #[unsafe(naked)]
        unsafe extern "C" fn first_call() {
            std::arch::naked_asm!(
                "endbr64",
                "push rax", "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push r10",
                "push r11",
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3", "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "call {fill}",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]", "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop r11", "pop r10", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi", "pop rax",
                "lea r10, [rip + {table}]",
                "jmp qword ptr [r10 + 8*r11]",
                fill = sym fill_the_table,
                table = sym TABLE,
            )
        }

        $(
            /// A stub: see the module.
            ///
            /// # Safety
            /// As the library's function of this name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "endbr64",
                    "mov r11d, {place}",
                    "jmp qword ptr [rip + {table} + 8*{place}]",
                    place = const $place,
                    table = sym TABLE,
                )
            }
        )*
    };
}
pub(crate) use stubs;

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn every_name_is_found_at_its_place() {
        for names in [&crate::cuda::NAMES[..], &crate::nvml::NAMES[..]] {
            for (expected, name) in names.iter().enumerate() {
                assert_eq!(place(names, name), expected, "{name}");
            }
        }
    }
}
