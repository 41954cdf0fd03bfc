//! The way of one layer's bytes: checked against its digest as they come, decompressed, checked again as the
//! archive the configuration speaks of, and bounded.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};
use tenure_domain::workload::image::ImageDigest;

use super::ImageError;
use super::unpack::{Unpacked, unpack};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub fn digest_of(bytes: &[u8]) -> ImageDigest {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    finish(context)
}

fn finish(context: Context) -> ImageDigest {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    ImageDigest(digest)
}

/// Passes bytes on and, at their end, fails unless they were the right ones and no more.
pub struct Checked<R> {
    from: R,
    context: Option<Context>,
    expected: ImageDigest,
    /// How many may still come.
    left: u64,
    over: Over,
}

/// What it means that more came than was announced.
enum Over {
    Damaged,
    TooLarge(u64),
}

impl<R: Read> Checked<R> {
    /// Exactly so many bytes of that digest.
    pub fn sized(from: R, expected: ImageDigest, size: u64) -> Checked<R> {
        Checked {
            from,
            context: Some(Context::new(&SHA256)),
            expected,
            left: size,
            over: Over::Damaged,
        }
    }

    /// At most so many bytes, of that digest.
    fn bounded(from: R, expected: ImageDigest, most: u64) -> Checked<R> {
        Checked {
            over: Over::TooLarge(most),
            ..Checked::sized(from, expected, most)
        }
    }

    fn damaged(&self) -> io::Error {
        let what = format!("blob {}", self.expected);
        ImageError::Damaged { what }.through()
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(buffer)?;
        let Some(context) = &mut self.context else {
            return if got == 0 { Ok(0) } else { Err(self.damaged()) };
        };
        if got as u64 > self.left {
            return Err(match self.over {
                Over::Damaged => self.damaged(),
                Over::TooLarge(limit) => ImageError::TooLarge {
                    what: "the image",
                    limit,
                    unit: "bytes",
                }
                .through(),
            });
        }
        self.left -= got as u64;
        context.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() {
            let short = self.left > 0 && matches!(self.over, Over::Damaged);
            let same = self.context.take().map(finish) == Some(self.expected);
            if short || !same {
                return Err(self.damaged());
            }
        }
        Ok(got)
    }
}

/// Unpacks a layer into an empty directory. `source` fails by itself where its bytes are not the right ones.
pub fn unpack_layer(
    source: &mut dyn Read,
    diff_id: ImageDigest,
    into: &Path,
    bytes_max: u64,
    entries_max: u64,
) -> Result<Unpacked, ImageError> {
    let mut source = BufReader::with_capacity(128 * 1024, source);
    let read_error = |error| ImageError::from_read("read a layer", error);
    let unpacked = {
        let plain = decompressed(&mut source).map_err(read_error)?;
        let mut plain = Checked::bounded(plain, diff_id, bytes_max);
        let unpacked = unpack(&mut plain, into, entries_max)?;
        // What follows the archive is part of what was promised.
        io::copy(&mut plain, &mut io::sink()).map_err(read_error)?;
        unpacked
    };
    io::copy(&mut source, &mut io::sink()).map_err(read_error)?;
    Ok(unpacked)
}

/// By what the bytes say, since media types are often wrong.
fn decompressed<'a, R: BufRead>(source: &'a mut R) -> io::Result<Box<dyn Read + 'a>> {
    let start = source.fill_buf()?;
    if start.starts_with(&ZSTD) {
        return Ok(Box::new(Zstd::new(source)));
    }
    if start.starts_with(&GZIP) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(source)));
    }
    Ok(Box::new(source))
}

/// Frame after frame, passing over those that carry no data.
struct Zstd<'a, R> {
    source: &'a mut R,
    decoder: ruzstd::decoding::FrameDecoder,
    begun: bool,
}

impl<'a, R: BufRead> Zstd<'a, R> {
    fn new(source: &'a mut R) -> Zstd<'a, R> {
        Zstd {
            source,
            decoder: ruzstd::decoding::FrameDecoder::new(),
            begun: false,
        }
    }

    /// False at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut start = [0; 4];
            self.source.read_exact(&mut start)?;
            if start == ZSTD {
                let frame = start.chain(&mut *self.source);
                self.decoder.reset(frame).map_err(malformed)?;
                self.begun = true;
                return Ok(true);
            }
            // The sixteen numbers of frames to be skipped.
            if start[0] & 0xf0 != 0x50 || start[1..] != [0x2a, 0x4d, 0x18] {
                return Err(malformed("data that is no frame"));
            }
            let mut length = [0; 4];
            self.source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut (&mut *self.source).take(length), &mut io::sink())? != length {
                return Err(malformed("a frame that is cut short"));
            }
        }
    }
}

fn malformed(why: impl std::fmt::Display) -> io::Error {
    let what = format!("a zstd layer ({why})");
    ImageError::Damaged { what }.through()
}

impl<R: BufRead> Read for Zstd<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use ruzstd::decoding::BlockDecodingStrategy;
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            while self.begun && self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut *self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(malformed)?;
            }
            if self.begun && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
