//! Block devices made of files: the calls of linux/loop.h, and the one with which ext4 grows while it is mounted.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::check;

const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_SET_CAPACITY: libc::Ioctl = 0x4c07;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
/// The device lets go of its file when nothing holds the device.
const AUTOCLEAR: u32 = 4;
/// `_IOW('f', 16, __u64)` of fs/ext4/ext4.h.
const EXT4_RESIZE: libc::Ioctl = 0x4008_6610;
/// Somebody else may take the free device that was found.
const TRIES: usize = 100;

#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

fn no_info() -> LoopInfo {
    // SAFETY: numbers and arrays of numbers, for which all zero is valid.
    unsafe { std::mem::zeroed() }
}

/// A file as a block device, for as long as anything holds the device.
pub struct LoopDevice {
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// The device the image is on already, or a new one.
    ///
    /// INVARIANT: a file is never on two devices: two mounts would not know of one another and destroy it.
    pub fn of(image: &File) -> io::Result<LoopDevice> {
        match LoopDevice::find(image)? {
            Some(device) => Ok(device),
            None => LoopDevice::attach(image),
        }
    }

    /// The device the image is on.
    pub fn find(image: &File) -> io::Result<Option<LoopDevice>> {
        let facts = image.metadata()?;
        for entry in std::fs::read_dir("/sys/block")? {
            let name = entry?.file_name();
            if !name.as_encoded_bytes().starts_with(b"loop")
                || !Path::new("/sys/block").join(&name).join("loop").exists()
            {
                continue;
            }
            let path = Path::new("/dev").join(&name);
            // Held open before it is asked: from here on it stays what it is.
            let Ok(file) = File::options().read(true).write(true).open(&path) else {
                continue;
            };
            let mut info = no_info();
            // SAFETY: the struct is live and of the type this call fills.
            let told = check(unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, &mut info) });
            // The kernel tells the file's device in an older encoding; within one it is the inode that counts.
            if told.is_ok() && info.inode == facts.ino() && is_same_device(info.device, facts.dev()) {
                return Ok(Some(LoopDevice { file, path }));
            }
        }
        Ok(None)
    }

    fn attach(image: &File) -> io::Result<LoopDevice> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let mut config = LoopConfig {
            fd: image.as_raw_fd() as u32,
            block_size: 0,
            info: no_info(),
            reserved: [0; 8],
        };
        config.info.flags = AUTOCLEAR;
        for _ in 0..TRIES {
            // SAFETY: the call takes no argument and answers with a number.
            let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = File::options().read(true).write(true).open(&path)?;
            // SAFETY: the struct is live, and the descriptor in it open.
            match check(unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE, &config) }) {
                Ok(_) => return Ok(LoopDevice { file, path }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("every loop device was taken by others"))
    }

    /// Sees that the file has another size now.
    pub fn refresh(&self) -> io::Result<()> {
        // SAFETY: the call takes no argument.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), LOOP_SET_CAPACITY, 0) }).map(drop)
    }

    /// The ext4 on it, mounted nowhere yet: whoever has the descriptor may put it somewhere. Mounts of one device are
    /// one file system, however many there are.
    pub fn mount_ext4(&self, read_only: bool) -> io::Result<OwnedFd> {
        use rustix::mount::{
            FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
        };
        let ext4 = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&ext4, "source", self.path.as_os_str().as_encoded_bytes())?;
        fsconfig_create(&ext4)?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if read_only {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        Ok(fsmount(&ext4, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
    }
}

impl LoopDevice {
    /// The root directory of the ext4 on it.
    pub fn root(&self) -> io::Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags, openat};
        let mount = self.mount_ext4(false)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&mount, ".", flags, Mode::empty())?)
    }
}

/// The encodings of a device's numbers by the kernel (12 and 20 bits) and by the C library.
fn is_same_device(told: u64, known: u64) -> bool {
    let (major, minor) = (libc::major(known), libc::minor(known));
    let old = u64::from(minor & 0xff) | u64::from(major & 0xfff) << 8 | u64::from(minor & !0xff) << 12;
    told == known || told == old
}

/// Makes a mounted ext4 fill this many of its blocks; what it fills already is no error.
pub fn resize_ext4(root: &impl AsRawFd, blocks: u64) -> io::Result<()> {
    // SAFETY: the call reads one live number.
    check(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_RESIZE, &blocks) }).map(drop)
}

/// Puts a mount that is nowhere at a directory.
pub fn place_mount(mount: &impl std::os::fd::AsFd, at: &Path) -> io::Result<()> {
    use rustix::mount::{MoveMountFlags, move_mount};
    move_mount(
        mount,
        "",
        rustix::fs::CWD,
        at,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}
