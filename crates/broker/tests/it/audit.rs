//! What the worker tells the audit: messages that the small library never sends, and nothing else.

use std::time::Duration;

use tenure_limits::Counter;
use tenure_wire::{Greeting, NO_SLOT, Socket, TenantSide};

use crate::bench::{Bench, Vendor, eventually, spec, turn};

#[test]
fn malformed_messages_are_counted_and_departures_are_not() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let served = bench.serve(1);
    let connect = || {
        let socket = Socket::connect(&served.socket).unwrap();
        let shared = Greeting::ask(&socket).unwrap();
        (socket, TenantSide::new(shared))
    };
    // A process that dies at any point only goes away.
    drop(Socket::connect(&served.socket).unwrap());
    drop(connect());
    for sent in 1..=3 {
        let (socket, side) = connect();
        let mut frame = Vec::new();
        TenantSide::frame(&mut frame);
        frame.extend_from_slice(&[0xff; 40]);
        assert!(side.send(NO_SLOT, 0, 0, &mut frame, || socket.is_open()));
        eventually("the message is counted", Duration::from_secs(10), || {
            bench.counter(1, Counter::Malformed) == sent
        });
    }
    let (socket, _side) = connect();
    socket.send(b"no request of ours", None).unwrap();
    eventually("the request is counted", Duration::from_secs(10), || {
        bench.counter(1, Counter::Malformed) == 4
    });
}
