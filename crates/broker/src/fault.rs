//! Why a call was not done.

use tenure_wire::Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A code of the API, for the caller.
    Code(i32),
    /// Not what our own library would ever send: the connection ends.
    Broken,
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Fault {
        Fault::Broken
    }
}

/// A code of the driver as a result.
pub fn checked(code: i32) -> Result<(), Fault> {
    if code == crate::abi::SUCCESS {
        Ok(())
    } else {
        Err(Fault::Code(code))
    }
}
