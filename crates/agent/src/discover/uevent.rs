//! The kernel's own news of devices: what it tells udev, heard beside it.
//!
//! Only a hint to look again, so what is said is not believed further. A kernel that gives no such socket, or a
//! container that hears nothing on it, leaves the signatures in `watch`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::unix::AsyncFd;

/// What the kernel itself sends; udev's own go to another group.
const KERNEL_GROUP: u32 = 1;
/// The kernel's `UEVENT_BUFFER_SIZE` is 2048, its head comes before.
const MESSAGE_BYTES_MAX: usize = 8192;
const SUBSYSTEMS: &[&str] = &["drm", "pci", "kfd", "accel"];

pub struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

impl Uevents {
    /// Call within a runtime.
    pub fn listen() -> io::Result<Uevents> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(KOBJECT_UEVENT),
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        // SAFETY: an `OwnedFd` names the same socket until it is dropped, and closes it only then.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(Uevents { socket })
    }

    /// Waits for news that may be of a GPU.
    pub async fn next(&self) -> io::Result<()> {
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let mut ready = self.socket.readable().await?;
            let read =
                ready.try_io(|socket| Ok(recv(socket.get_ref(), &mut message[..], RecvFlags::empty())?.0));
            match read {
                Ok(Ok(length)) if concerns(&message[..length.min(MESSAGE_BYTES_MAX)]) => return Ok(()),
                // Too much was said at once to be kept: something happened.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// A message is a line `ACTION@PATH` and then `KEY=VALUE`, each ended by a zero.
fn concerns(message: &[u8]) -> bool {
    let said = |key: &str| {
        message
            .split(|byte| *byte == 0)
            .filter_map(|line| std::str::from_utf8(line).ok())
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    said("SUBSYSTEM").is_some_and(|subsystem| SUBSYSTEMS.contains(&subsystem))
        || said("DEVPATH").is_some_and(|path| path.contains("/nvidia"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_of_gpus_concern_us() {
        let message = |subsystem: &str, path: &str| {
            format!("add@{path}\0ACTION=add\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0SEQNUM=7\0").into_bytes()
        };
        assert!(concerns(&message(
            "drm",
            "/devices/pci0000:00/0000:00:01.0/drm/card0"
        )));
        assert!(concerns(&message("pci", "/devices/pci0000:00/0000:00:01.0")));
        assert!(concerns(&message("module", "/module/nvidia_uvm")));
        assert!(!concerns(&message("net", "/devices/virtual/net/veth0")));
        assert!(!concerns(&message("block", "/devices/virtual/block/drm")));
        assert!(!concerns(b"") && !concerns(&[0xff; 64]));
    }

    /// Writing to a device's `uevent` makes the kernel tell of it again; that needs root.
    #[tokio::test]
    async fn the_kernel_is_heard() {
        let Some(device) = std::fs::read_dir("/sys/bus/pci/devices")
            .ok()
            .and_then(|mut devices| devices.next()?.ok())
        else {
            eprintln!("no PCI bus here: not tried");
            return;
        };
        let uevents = Uevents::listen().unwrap();
        if std::fs::write(device.path().join("uevent"), "change").is_err() {
            eprintln!("not root, or /sys is read-only: not tried");
            return;
        }
        let heard = tokio::time::timeout(std::time::Duration::from_secs(20), uevents.next()).await;
        heard.expect("the kernel's word came").unwrap();
    }
}
