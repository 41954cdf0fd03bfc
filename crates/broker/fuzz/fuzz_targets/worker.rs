//! Any bytes are a tenant's stream of calls: the worker does them or refuses them, stays within its objects, shows
//! nothing of the neighbour's, hangs on nothing and leaves nothing behind. See `trial` in the library.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_broker::trial::stream;

fuzz_target!(|bytes: &[u8]| stream::live(bytes));
