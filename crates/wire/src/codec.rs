//! Encoding of messages: fixed-width integers, and lists with their count before them. Decoding is total: every
//! sequence of bytes is a message or [`Malformed`], and never allocates more than a small multiple of what was sent.

/// What was sent is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A part of a message.
pub trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Reads a message's parts in their order.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub fn take<T: Field>(&mut self) -> Result<T, Malformed> {
        T::take(self)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (these, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(these)
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        let count = u32::take(self)? as usize;
        // Each element takes a byte at least, so a count beyond the rest is a lie.
        if count > self.0.len() {
            Err(Malformed)
        } else {
            Ok(count)
        }
    }

    /// Nothing may be left over.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

macro_rules! integers {
    ($($kind:ty)*) => {$(
        impl Field for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Result<$kind, Malformed> {
                let bytes = from.bytes(size_of::<$kind>())?;
                bytes.try_into().map(<$kind>::from_le_bytes).map_err(|_| Malformed)
            }
        }
    )*};
}

integers!(u16 u32 u64 i32 i64);

/// One byte of a number; bytes in bulk are `Vec<u8>`.
impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn take(from: &mut Reader<'_>) -> Result<bool, Malformed> {
        match from.bytes(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
        let count = from.count()?;
        from.bytes(count).map(<[u8]>::to_vec)
    }
}

/// Text without an end mark; one inside it is malformed.
impl Field for std::ffi::CString {
    fn put(&self, out: &mut Vec<u8>) {
        let bytes = self.as_bytes();
        (bytes.len() as u32).put(out);
        out.extend_from_slice(bytes);
    }

    fn take(from: &mut Reader<'_>) -> Result<std::ffi::CString, Malformed> {
        std::ffi::CString::new(Vec::<u8>::take(from)?).map_err(|_| Malformed)
    }
}

macro_rules! lists {
    ($($kind:ty)*) => {$(
        impl Field for Vec<$kind> {
            fn put(&self, out: &mut Vec<u8>) {
                (self.len() as u32).put(out);
                self.iter().for_each(|one| one.put(out));
            }

            fn take(from: &mut Reader<'_>) -> Result<Vec<$kind>, Malformed> {
                let count = from.count()?;
                (0..count).map(|_| from.take()).collect()
            }
        }
    )*};
}

lists!(u32 u64 i32 crate::Id crate::Span std::ffi::CString Vec<u8> crate::ArgumentKind);

impl<const N: usize> Field for [u64; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<[u64; N], Malformed> {
        let mut all = [0; N];
        for one in &mut all {
            *one = from.take()?;
        }
        Ok(all)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(one) = self {
            one.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        Ok(match from.take()? {
            true => Some(from.take()?),
            false => None,
        })
    }
}
