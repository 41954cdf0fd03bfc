//! The agent's word to the worker: one word a message, one line back. `status`, `suspend`, `resume`.

use std::sync::Arc;

use tenure_wire::{Listener, Socket};

use crate::inventory::Inventory;
use crate::suspend::{self, Moved};
use crate::worker::World;

/// Serves whoever connects, one after the other.
pub fn serve(world: &Arc<World>, listener: &Listener) {
    while let Ok(socket) = listener.accept() {
        while let Ok((word, _)) = socket.receive() {
            if word.is_empty() || !answer(world, &socket, &word) {
                break;
            }
        }
    }
}

fn answer(world: &World, socket: &Socket, word: &[u8]) -> bool {
    let moved = |done: Result<Moved, String>| match done {
        Ok(moved) => format!("ok bytes={} ms={}", moved.bytes, moved.took.as_millis()),
        Err(why) => format!("refused {why}"),
    };
    let line = match word {
        b"status" => status(world),
        b"suspend" => moved(suspend::suspend(world)),
        b"resume" => moved(suspend::resume(world)),
        _ => "refused no such word".into(),
    };
    let line: String = line.chars().take(250).collect();
    socket.send(line.as_bytes(), None).is_ok()
}

fn status(world: &World) -> String {
    let connections = world.connections();
    let all = Inventory::of(connections.iter().flat_map(|connection| connection.objects()));
    let state = match world.suspended.load(std::sync::atomic::Ordering::SeqCst) {
        true => "suspended",
        false => "running",
    };
    format!(
        "ok {state} connections={} queues={} memory={} bytes={} programs={} kernels={}",
        connections.len(),
        all.queues.len(),
        all.memory.len(),
        all.bytes(),
        all.programs.len(),
        all.kernels.len(),
    )
}
