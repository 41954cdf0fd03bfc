//! Files of `/etc` that are a job's own: who it is, and which names it knows.

use std::fs;

/// Name and content of each.
pub fn of(user_id: u32) -> [(&'static str, String); 5] {
    [
        (
            "passwd",
            format!("root:x:0:0::/nonexistent:/bin/false\njob:x:{user_id}:{user_id}::/tmp:/bin/sh\n"),
        ),
        ("group", format!("root:x:0:\njob:x:{user_id}:\n")),
        (
            "hosts",
            "127.0.0.1 localhost tenure\n::1 localhost ip6-localhost\n".to_owned(),
        ),
        ("hostname", "tenure\n".to_owned()),
        ("resolv.conf", resolvers()),
    ]
}

/// The host's name servers, but not a stub that listens on the host's own loopback.
pub fn resolvers() -> String {
    let places = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];
    let text = places
        .iter()
        .find_map(|place| fs::read_to_string(place).ok())
        .unwrap_or_default();
    text.lines()
        .filter(|line| !line.contains("127.0.0."))
        .map(|line| format!("{line}\n"))
        .collect()
}
