//! What is said over the socket: the greeting that opens a channel, and requests for more bulk memory.

use std::io;

use crate::channel::CHANNEL_BYTES;
use crate::codec::{Field, Reader};
use crate::memory::Shared;
use crate::socket::Socket;

/// The version of ring, frames and messages together.
pub const VERSION: u32 = 1;

const MAGIC: u32 = 0x5445_4e55;

/// The two sides' first words.
pub struct Greeting;

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

fn words(message: &[u8]) -> Option<[u64; 3]> {
    let mut from = Reader::new(message);
    let words = from.take().ok()?;
    from.end().ok()?;
    Some(words)
}

fn say(words: [u64; 3]) -> Vec<u8> {
    let mut message = Vec::new();
    words.put(&mut message);
    message
}

impl Greeting {
    /// The tenant's side: says its version and gets the channel's memory.
    pub fn ask(socket: &Socket) -> io::Result<Shared> {
        socket.send(&say([MAGIC.into(), VERSION.into(), 0]), None)?;
        let (message, file) = socket.receive()?;
        let [magic, version, bytes] = words(&message).ok_or_else(|| refused("no greeting came back"))?;
        if magic != u64::from(MAGIC) || version != u64::from(VERSION) {
            return Err(refused("the broker speaks another version"));
        }
        let file = file.ok_or_else(|| refused("no channel came with the greeting"))?;
        if bytes != CHANNEL_BYTES as u64 {
            return Err(refused("the channel has another size"));
        }
        Shared::adopt(file, CHANNEL_BYTES)
    }

    /// The broker's side: hears the version and gives a new channel.
    pub fn answer(socket: &Socket) -> io::Result<Shared> {
        let (message, _) = socket.receive()?;
        match words(&message) {
            Some([magic, version, 0]) if magic == u64::from(MAGIC) && version == u64::from(VERSION) => {}
            _ => return Err(refused("no greeting")),
        }
        let mut shared = Shared::create(CHANNEL_BYTES)?;
        socket.send(
            &say([MAGIC.into(), VERSION.into(), CHANNEL_BYTES as u64]),
            shared.file(),
        )?;
        shared.close_file();
        Ok(shared)
    }
}

/// More bulk memory: a number chosen by the tenant's side, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub region: u32,
    pub bytes: u64,
}

impl Wanted {
    /// Asks for a region; none if it is refused.
    pub fn ask(self, socket: &Socket) -> io::Result<Option<Shared>> {
        socket.send(&say([1, self.region.into(), self.bytes]), None)?;
        let (message, file) = socket.receive()?;
        let [granted, _, _] = words(&message).ok_or_else(|| refused("no answer"))?;
        match file {
            Some(file) if granted == 1 => {
                let bytes = usize::try_from(self.bytes).map_err(|_| refused("no such size"))?;
                let mut shared = Shared::adopt(file, bytes)?;
                shared.close_file();
                Ok(Some(shared))
            }
            _ => Ok(None),
        }
    }

    /// Lets a region go.
    pub fn give_back(region: u32, socket: &Socket) -> io::Result<()> {
        socket.send(&say([2, region.into(), 0]), None)?;
        socket.receive().map(|_| ())
    }

    /// The next request on the socket: one for a region, or (`bytes` zero) one to let it go; none at the end.
    pub fn hear(socket: &Socket) -> io::Result<Option<Wanted>> {
        let (message, _) = socket.receive()?;
        if message.is_empty() {
            return Ok(None);
        }
        match words(&message) {
            Some([1, region, bytes]) if bytes > 0 => {
                let region = u32::try_from(region).map_err(|_| refused("no such region"))?;
                Ok(Some(Wanted { region, bytes }))
            }
            Some([2, region, 0]) => {
                let region = u32::try_from(region).map_err(|_| refused("no such region"))?;
                Ok(Some(Wanted { region, bytes: 0 }))
            }
            _ => Err(refused("no request")),
        }
    }

    /// Answers the request with a region, or refuses it.
    pub fn answer(socket: &Socket, region: Option<&Shared>) -> io::Result<()> {
        socket.send(
            &say([region.is_some().into(), 0, 0]),
            region.and_then(Shared::file),
        )
    }
}
