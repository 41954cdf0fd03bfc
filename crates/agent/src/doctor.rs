//! What this host gives: its devices and the wall around jobs, one line each.

use crate::discover;
use crate::isolate::{Isolation, guard};

pub fn main() -> i32 {
    let isolation = Isolation::of_this_host();
    let mut found = discover::all("this-host");
    if let Err(why) = guard::beside_this_program() {
        found.without_guard(&why);
    }
    println!("cpu: {} thousandths of a core", found.cpu_milli);
    println!("memory: {} MiB", found.memory_mib);
    for discover::Device { facts: gpu, .. } in &found.devices {
        println!(
            "device: {} ({}, {} MiB), class {}",
            gpu.model, gpu.uuid, gpu.vram_mib, gpu.class
        );
        for (level, why) in &gpu.isolation {
            println!("  {}: {why}", level.as_str());
        }
    }
    for note in found.notes.iter().chain(&isolation.notes) {
        println!("{note}");
    }
    0
}
