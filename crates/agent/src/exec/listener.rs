//! Who listens on a port: the jobs of a tenant on one node share a loopback, so the first to bind a port gets what was
//! meant for another, unless somebody looks. Read in the job's own world, where only its own processes are seen.

use std::collections::BTreeSet;
use std::path::Path;

/// The listening sockets of a port, if all of them are the job's own; else why nothing is to be sent there.
pub(super) fn own(proc: &Path, port: u16) -> Result<BTreeSet<u64>, String> {
    let mut listening = BTreeSet::new();
    for table in ["net/tcp", "net/tcp6"] {
        // A kernel without IPv6 has no table of it.
        let text = std::fs::read_to_string(proc.join(table)).unwrap_or_default();
        listening.extend(text.lines().skip(1).filter_map(|line| listens_on(line, port)));
    }
    if listening.is_empty() {
        return Err(format!("nothing listens on port {port} in the job"));
    }
    match listening.is_subset(&held(proc)) {
        true => Ok(listening),
        false => Err(format!(
            "port {port} is listened on by another job of the tenant, not by this one"
        )),
    }
}

/// The socket of one line of the kernel's table, if it listens on the port.
fn listens_on(line: &str, port: u16) -> Option<u64> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, local) = fields.next()?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    (u16::from_str_radix(local, 16) == Ok(port) && state == LISTENS).then_some(inode)
}

/// All sockets that processes of the job have open.
fn held(proc: &Path) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let processes = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let files = processes.flat_map(|process| {
        std::fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
    });
    files
        .filter_map(|file| {
            let target = std::fs::read_link(file.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table() {
        let listens = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listens_on(listens, 0x1F90), Some(4711));
        assert_eq!(listens_on(listens, 0x1F91), None);
        assert_eq!(listens_on(&listens.replace(" 0A ", " 01 "), 0x1F90), None);
        let six = "   1: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0  1000 0 12 1";
        assert_eq!(listens_on(six, 0x1F90), Some(12));
        assert_eq!(listens_on("", 1), None);
    }

    #[test]
    fn only_what_all_is_ones_own_is_reached() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(own(Path::new("/proc"), port).map(|sockets| sockets.len()), Ok(1));
        // Another world has the same network and other processes.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::create_dir(elsewhere.path().join("net")).unwrap();
        std::fs::copy("/proc/net/tcp", elsewhere.path().join("net/tcp")).unwrap();
        assert!(own(elsewhere.path(), port).unwrap_err().contains("another job"));
        drop(socket);
        assert!(
            own(Path::new("/proc"), port)
                .unwrap_err()
                .contains("nothing listens")
        );
    }
}
