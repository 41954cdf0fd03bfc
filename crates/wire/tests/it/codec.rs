//! Encoding and decoding: what goes in comes out, and whatever else comes in is refused without a panic.

use std::ffi::CString;

use proptest::prelude::*;
use tenure_wire::{Argument, Id, Order, Request, Span, Subject};

fn id() -> impl Strategy<Value = Id> {
    (any::<u32>(), any::<u32>()).prop_map(|(place, generation)| Id { place, generation })
}

fn span() -> impl Strategy<Value = Span> {
    (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(region, at, bytes)| Span { region, at, bytes })
}

fn order() -> impl Strategy<Value = Order> {
    (id(), id(), prop::collection::vec(id(), 0..8)).prop_map(|(queue, event, waits)| Order {
        queue,
        event,
        waits,
    })
}

fn text() -> impl Strategy<Value = CString> {
    prop::collection::vec(1u8.., 0..64).prop_map(|bytes| CString::new(bytes).unwrap())
}

fn argument() -> impl Strategy<Value = Argument> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64).prop_map(Argument::Bytes),
        any::<u64>().prop_map(Argument::Local),
        id().prop_map(Argument::Memory),
        id().prop_map(Argument::Sampler),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Devices {}),
        (
            id(),
            any::<u32>(),
            prop::collection::vec(any::<u8>(), 0..64),
            prop::option::of(span())
        )
            .prop_map(|(object, param, input, into)| Request::Ask {
                subject: Subject::Kernel,
                object,
                device: 1,
                index: 2,
                param,
                input,
                into,
            }),
        (
            id(),
            id(),
            prop::collection::vec(any::<u32>(), 0..8),
            prop::collection::vec(span(), 0..8)
        )
            .prop_map(|(id, context, devices, binaries)| Request::Binary {
                id,
                context,
                devices,
                binaries,
            }),
        (
            id(),
            text(),
            prop::collection::vec(id(), 0..8),
            prop::collection::vec(text(), 0..8)
        )
            .prop_map(|(program, options, headers, names)| Request::Compile {
                program,
                devices: vec![],
                options,
                headers,
                names,
            }),
        (id(), any::<u32>(), argument()).prop_map(|(kernel, place, value)| Request::Argue {
            kernel,
            place,
            value,
        }),
        (
            order(),
            id(),
            any::<[u64; 3]>(),
            prop::option::of(any::<[u64; 3]>())
        )
            .prop_map(|(order, kernel, global, local)| Request::Launch {
                order,
                kernel,
                sides: 3,
                offset: local,
                global,
                local,
            }),
        (order(), id(), any::<u64>(), span()).prop_map(|(order, buffer, at, to)| Request::Read {
            order,
            buffer,
            at,
            to,
        }),
    ]
}

proptest! {
    // Under miri each takes seconds.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 4096 }))]

    #[test]
    fn a_message_comes_back_as_it_went(request in request()) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        prop_assert_eq!(Request::decode(&bytes), Ok(request));
    }

    #[test]
    fn a_cut_or_lengthened_message_is_none(request in request(), cut in 1usize..16) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(Request::decode(&longer).is_err());
        bytes.truncate(bytes.len().saturating_sub(cut));
        prop_assert!(Request::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_decode_to_something_that_encodes_alike(bytes in prop::collection::vec(any::<u8>(), 0..512), number in 0u16..80) {
        let bytes = [&number.to_le_bytes(), bytes.as_slice()].concat();
        if let Ok(request) = Request::decode(&bytes) {
            let mut again = Vec::new();
            request.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn a_mutated_message_is_a_message_or_none(request in request(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let place = at.index(bytes.len());
        bytes[place] = byte;
        let _ = Request::decode(&bytes);
    }
}
