//! The trial's own proof, and a case for every fault a trial has found.

use std::ffi::CString;

use tenure_wire::{Argument, Order, Subject};

use super::stream::{TEXT, each_call, live, of_calls, sessions};
use super::*;
use crate::abi::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_IMAGE_DESCRIPTOR, INVALID_MEM_OBJECT};

#[test]
fn every_kind_of_call_is_drawn_as_a_message() {
    for call in each_call() {
        assert!(Request::decode(&call).is_ok(), "{call:?}");
    }
}

/// A trial with a region of a page under number one.
fn trial() -> Trial {
    let mut trial = Trial::begin();
    assert!(trial.grant(1, 4096));
    let all = Span {
        region: 1,
        at: 0,
        bytes: 4096,
    };
    trial.write(all, TEXT);
    trial
}

#[test]
fn what_our_own_library_could_send_is_done_and_leaves_nothing() {
    for session in sessions() {
        live(&of_calls(&session));
        let mut trial = trial();
        for call in &session {
            match trial.call(call) {
                Outcome::Answered(0, _) => {}
                Outcome::Given => trial.rest(),
                other => panic!("{call:?}: {other:?}"),
            }
        }
        assert!(trial.suspend());
        trial.end();
    }
}

const GONE: i32 = crate::abi::INVALID_KERNEL_ARGS;

fn id(place: u32) -> Id {
    Id { place, generation: 0 }
}

fn order(queue: u32) -> Order {
    Order {
        queue: id(queue),
        event: Id::NONE,
        waits: vec![],
    }
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

impl Trial {
    /// The code a call is answered with.
    fn code(&mut self, request: &Request) -> i32 {
        let sequence = self.sequence + 1;
        match self.call(request) {
            Outcome::Answered(code, _) => code,
            Outcome::Given => {
                self.rest();
                assert!(self.tenant.is_answered(sequence % SLOTS, sequence));
                self.tenant.status(sequence % SLOTS)
            }
            Outcome::Broken => panic!("the connection ended by {request:?}"),
        }
    }

    fn done(&mut self, request: Request) {
        assert_eq!(self.code(&request), 0, "{request:?}");
    }

    fn context(&mut self, place: u32, devices: &[u32]) -> i32 {
        self.code(&Request::Context {
            id: id(place),
            devices: devices.to_vec(),
        })
    }

    fn queue(&mut self, place: u32, context: u32, device: u32) -> i32 {
        self.code(&Request::Queue {
            id: id(place),
            context: id(context),
            device,
            properties: 0,
            extra: vec![],
        })
    }

    fn buffer(&mut self, place: u32, context: u32) {
        self.done(Request::Buffer {
            id: id(place),
            context: id(context),
            flags: 1,
            bytes: 512,
            from: None,
        });
    }

    /// A program of a binary, whose kernels do not say what they take.
    fn binary(&mut self, place: u32, context: u32, device: u32) {
        self.done(Request::Binary {
            id: id(place),
            context: id(context),
            devices: vec![device],
            binaries: vec![Span {
                region: 1,
                at: 0,
                bytes: 16,
            }],
        });
        assert_eq!(self.build(place, ""), 0);
    }

    fn build(&mut self, program: u32, options: &str) -> i32 {
        self.code(&Request::Build {
            program: id(program),
            devices: vec![],
            options: text(options),
        })
    }

    fn kernel(&mut self, place: u32, program: u32, name: &str) {
        self.done(Request::Kernel {
            id: id(place),
            program: id(program),
            name: text(name),
        });
    }

    fn argue(&mut self, kernel: u32, memory: u32) -> i32 {
        self.code(&Request::Argue {
            kernel: id(kernel),
            place: 0,
            value: Argument::Memory(id(memory)),
        })
    }

    fn launch(&mut self, queue: u32, kernel: u32) -> i32 {
        self.code(&Request::Launch {
            order: order(queue),
            kernel: id(kernel),
            sides: 1,
            offset: None,
            global: [1; 3],
            local: None,
        })
    }

    fn first_byte(&mut self, queue: u32, buffer: u32) -> u8 {
        let to = Span {
            region: 1,
            at: 0,
            bytes: 1,
        };
        self.done(Request::Read {
            order: order(queue),
            buffer: id(buffer),
            at: 0,
            to,
        });
        self.here.copy(to, 1).unwrap()[0]
    }
}

/// Two vendors' drivers, each with a context, a queue, a buffer and a kernel.
fn two_vendors() -> Trial {
    let mut trial = trial();
    for (vendor, device) in [(0, 0), (10, 2)] {
        assert_eq!(trial.context(vendor, &[device]), 0);
        assert_eq!(trial.queue(vendor + 1, vendor, device), 0);
        trial.buffer(vendor + 2, vendor);
        trial.binary(vendor + 3, vendor, device);
        trial.kernel(vendor + 4, vendor + 3, "b");
    }
    trial
}

#[test]
fn no_object_of_one_vendor_reaches_anothers_driver() {
    let mut trial = two_vendors();
    assert_eq!(trial.context(20, &[0, 2]), INVALID_DEVICE);
    assert_eq!(trial.queue(20, 0, 2), INVALID_DEVICE);
    assert_eq!(trial.argue(4, 12), INVALID_MEM_OBJECT);
    assert_eq!(trial.argue(4, 2), 0);
    assert_eq!(trial.launch(11, 4), INVALID_CONTEXT);
    let copy = Request::Copy {
        order: order(1),
        from: id(2),
        to: id(12),
        from_at: 0,
        to_at: 0,
        bytes: 8,
    };
    assert_eq!(trial.code(&copy), INVALID_CONTEXT);
    for (place, context) in [(20, 0), (21, 10)] {
        trial.done(Request::UserEvent {
            id: id(place),
            context: id(context),
        });
    }
    let waits = Order {
        waits: vec![id(21)],
        ..order(1)
    };
    assert_eq!(trial.code(&Request::Marker { order: waits }), INVALID_CONTEXT);
    let both = vec![id(20), id(21)];
    assert_eq!(trial.code(&Request::Wait { events: both }), INVALID_CONTEXT);
    let link = Request::Link {
        id: id(22),
        context: id(0),
        devices: vec![],
        options: text(""),
        programs: vec![id(13)],
    };
    assert_eq!(trial.code(&link), INVALID_CONTEXT);
    let ask = Request::Ask {
        subject: Subject::KernelOnDevice,
        object: id(4),
        device: 2,
        index: 0,
        param: 0x11B0,
        input: vec![],
        into: None,
    };
    assert_eq!(trial.code(&ask), INVALID_DEVICE);
    trial.end();
}

#[test]
fn an_image_seen_in_other_memory_lies_within_it() {
    let mut trial = trial();
    assert_eq!(trial.context(0, &[0]), 0);
    trial.buffer(2, 0);
    let image = |place: u32, shape: [u64; 9], of: Id| Request::Image {
        id: id(place),
        context: id(0),
        flags: 1,
        order: 0x10B5,
        channel: 0x10DA,
        shape,
        of,
        from: None,
    };
    trial.done(image(3, [0x10F1, 8, 8, 0, 0, 0, 0, 0, 0], Id::NONE));
    for (what, shape, of) in [
        ("overlapping rows", [0x10F1, 64, 8, 0, 0, 1, 0, 0, 0], id(2)),
        ("slices of a buffer", [0x10F2, 4, 4, 9, 0, 0, 0, 0, 0], id(2)),
        ("an array in a buffer", [0x10F3, 4, 4, 0, 9, 0, 0, 0, 0], id(2)),
        (
            "more rows than the buffer has",
            [0x10F1, 8, 17, 0, 0, 0, 0, 0, 0],
            id(2),
        ),
        ("an image seen larger", [0x10F1, 9, 8, 0, 0, 0, 0, 0, 0], id(3)),
        (
            "no buffer to be an image of",
            [0x10F6, 8, 0, 0, 0, 0, 0, 0, 0],
            Id::NONE,
        ),
    ] {
        assert_eq!(
            trial.code(&image(4, shape, of)),
            INVALID_IMAGE_DESCRIPTOR,
            "{what}"
        );
    }
    trial.done(image(4, [0x10F1, 8, 16, 0, 0, 32, 0, 0, 0], id(2)));
    trial.done(image(5, [0x10F1, 8, 8, 0, 0, 0, 0, 0, 0], id(3)));
    let ask = Request::Ask {
        subject: Subject::Image,
        object: id(2),
        device: 0,
        index: 0,
        param: 0x1110,
        input: vec![],
        into: None,
    };
    assert_eq!(trial.code(&ask), INVALID_MEM_OBJECT, "a buffer is no image");
    trial.end();
}

#[test]
fn a_clone_keeps_its_arguments_though_the_driver_does_not_say_what_they_are() {
    let mut trial = two_vendors();
    assert_eq!(trial.argue(4, 2), 0);
    trial.done(Request::CloneKernel {
        id: id(5),
        kernel: id(4),
    });
    assert_eq!(trial.launch(1, 5), 0);
    assert_eq!(trial.first_byte(1, 2), 1);
    trial.done(Request::Release { id: id(2) });
    assert_eq!(trial.launch(1, 5), GONE);
    trial.end();
}

#[test]
fn kernels_that_cannot_be_kept_are_given_back() {
    let mut trial = two_vendors();
    let request = Request::Kernels {
        program: id(3),
        ids: vec![id(5), id(5), id(6)],
    };
    assert_eq!(trial.call(&request), Outcome::Broken);
    trial.end();
}

#[test]
fn a_build_the_driver_refused_to_try_changes_nothing_taken_up_again() {
    let mut trial = two_vendors();
    assert_eq!(trial.build(3, "-fail"), crate::abi::INVALID_OPERATION);
    assert!(trial.suspend());
    assert_eq!(trial.argue(4, 2), 0);
    assert_eq!(trial.launch(1, 4), 0);
    trial.end();
}

/// A binary that grows between the question how long it is and the question what it is would be written past its end.
#[test]
fn binaries_are_fetched_whole_while_others_are_built() {
    let mut trial = trial();
    assert_eq!(trial.context(0, &[0]), 0);
    trial.binary(3, 0, 0);
    for round in 0..200 {
        let build = Request::Build {
            program: id(3),
            devices: vec![],
            options: text(&"-D A ".repeat(round % 7)),
        };
        trial.call(&build);
        let fetch = Request::Binaries {
            program: id(3),
            place: 0,
            into: Span {
                region: 1,
                at: 0,
                bytes: 4096,
            },
        };
        trial.done(fetch);
    }
    trial.rest();
    trial.end();
}

#[test]
fn no_thread_outlives_its_connection() {
    let helpers = Helpers::default();
    let (sent, heard) = std::sync::mpsc::channel();
    for _ in 0..8 {
        let sent = sent.clone();
        assert!(helpers.give(move || sent.send(std::thread::current().id()).unwrap()));
    }
    drop(sent);
    assert_eq!(heard.iter().count(), 8);
    let begun = Instant::now();
    let left = helpers.threads();
    drop(helpers);
    while left.upgrade().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(2), "idle helpers stay");
        std::thread::sleep(Duration::from_millis(1));
    }
}
