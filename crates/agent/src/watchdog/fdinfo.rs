//! What the kernel's graphics drivers tell of a process: `/proc/PID/fdinfo`, by the keys of the kernel's
//! documentation (`drm-usage-stats`). Files opened twice are one client and are counted once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// No such file is longer.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the memory of the device in this PCI slot that the process holds.
pub fn held_bytes(root: &Path, pid: i32, slot: &str) -> u64 {
    let dir = root.join("proc").join(pid.to_string()).join("fdinfo");
    let Ok(files) = fs::read_dir(dir) else {
        return 0;
    };
    let mut clients: BTreeMap<String, u64> = BTreeMap::new();
    for file in files.flatten() {
        // Some of what is there is the job's to write, so it may be no text.
        let Ok(text) = fs::read(file.path()) else {
            continue;
        };
        let text = String::from_utf8_lossy(&text[..text.len().min(FILE_BYTES_MAX)]);
        if let Some((client, bytes)) = client(&text, slot) {
            let most = clients.entry(client).or_default();
            *most = bytes.max(*most);
        }
    }
    clients.values().sum()
}

/// The client of a file of this device, and what it holds.
fn client(text: &str, slot: &str) -> Option<(String, u64)> {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .map(str::trim)
    };
    if !value("drm-pdev")?.eq_ignore_ascii_case(slot) {
        return None;
    }
    let client = value("drm-client-id").unwrap_or("0").to_owned();
    let mut regions: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let Some((key, amount)) = line.split_once(':') else {
            continue;
        };
        let region = ["drm-resident-", "drm-memory-"]
            .iter()
            .find_map(|prefix| key.strip_prefix(prefix));
        // What lies in the host's memory is the host's to limit.
        let Some(region) = region.filter(|region| region.starts_with("vram") || region.starts_with("local"))
        else {
            continue;
        };
        let most = regions.entry(region).or_default();
        *most = amount_bytes(amount).unwrap_or(0).max(*most);
    }
    Some((client, regions.values().sum()))
}

/// A number with or without a unit.
fn amount_bytes(amount: &str) -> Option<u64> {
    let mut words = amount.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some(_) => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD: &str = "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:10:00.0\n\
        drm-memory-vram:\t2048 KiB\ndrm-memory-gtt:\t999999 KiB\ndrm-total-vram:\t9000 KiB\ndrm-resident-vram:\t3 MiB\n";

    #[test]
    fn device_memory_is_counted_and_the_hosts_is_not() {
        assert_eq!(client(AMD, "0000:10:00.0"), Some(("7".into(), 3 << 20)));
        assert_eq!(client(AMD, "0000:11:00.0"), None);
        let xe = "drm-driver: xe\ndrm-client-id: 9\ndrm-pdev: 0000:03:00.0\ndrm-resident-vram0: 5000\ndrm-resident-vram1: 1 KiB\n\
            drm-resident-system: 7 MiB\n";
        assert_eq!(client(xe, "0000:03:00.0"), Some(("9".into(), 6024)));
        let i915 = "drm-pdev: 0000:03:00.0\ndrm-resident-local0: 4 KiB\n";
        assert_eq!(client(i915, "0000:03:00.0"), Some(("0".into(), 4096)));
    }

    #[test]
    fn a_file_opened_twice_counts_once() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/12/fdinfo");
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in [
            ("3", AMD),
            ("4", AMD),
            ("5", &AMD.replace("client-id:\t7", "client-id:\t8")),
            ("6", "pos: 0"),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        // What the client is called may be no text.
        let named = [
            AMD.replace("client-id:\t7", "client-id:\t9").as_bytes(),
            b"drm-client-name:\t\xff\n",
        ]
        .concat();
        fs::write(dir.join("7"), named).unwrap();
        assert_eq!(held_bytes(root.path(), 12, "0000:10:00.0"), 9 << 20);
        assert_eq!(held_bytes(root.path(), 13, "0000:10:00.0"), 0);
    }
}
