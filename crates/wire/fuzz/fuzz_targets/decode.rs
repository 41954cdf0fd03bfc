//! Any bytes are a message that encodes to the same bytes, or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::Request;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        let mut again = Vec::new();
        request.encode(&mut again);
        assert_eq!(again, bytes);
    }
});
