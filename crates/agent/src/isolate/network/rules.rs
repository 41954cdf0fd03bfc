//! Addresses, names and packet rules of tenants' networks.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use super::run;

/// How many networks one agent makes.
pub(super) const NETWORKS: u16 = 1024;
/// 100.64.0.0/10, set apart for carriers: a home or office network is rarely there.
const FIRST: u32 = 0x6440_0000;

/// How many connections of one network the host keeps in mind at once. Its table is one for all: without a bound,
/// whoever fills it takes away everybody's way out.
const CONNECTIONS: u32 = 8192;

/// Not the Internet: the host's own and its neighbours' networks, metadata services, groups.
const NOT_PUBLIC: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, \
                          192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";

/// The host's end and the tenant's.
pub(super) fn addresses(host_part: u16, number: u16) -> [Ipv4Addr; 2] {
    let base = FIRST | u32::from(host_part) << 12 | u32::from(number) << 2;
    [base + 1, base + 2].map(Ipv4Addr::from)
}

/// The host's end of a cable; interface names are short.
pub(super) fn cable(host_part: u16, number: u16) -> String {
    format!("tn{host_part:03x}-{number}")
}

fn table(host_part: u16) -> String {
    format!("tenure_{host_part:03x}")
}

/// Takes the rules away; where there are none, nothing happens.
pub(super) fn remove(host_part: u16) {
    let table = table(host_part);
    let _ = run("nft", &["delete", "table", "inet", &table], "");
}

/// Lets networks reach public addresses and name servers, and nothing of the host. Why not, where it cannot.
pub(super) fn lay(host_part: u16) -> Result<(), String> {
    let table = table(host_part);
    let cables = format!("tn{host_part:03x}-*");
    let servers = name_servers();
    let names = if servers.is_empty() {
        String::new()
    } else {
        format!(
            "ip daddr {{ {} }} meta l4proto {{ tcp, udp }} th dport 53 accept",
            servers.join(", ")
        )
    };
    // Nothing goes through `counted`: a kernel that counts no connections says so here, and not at the first job.
    let text = format!(
        r#"table inet {table} {{ }}
delete table inet {table}
table inet {table} {{
    map rates {{ type ifname : verdict; }}
    chain counted {{
        ct state new ct count over {CONNECTIONS} drop
    }}
    chain input {{
        type filter hook input priority -10; policy accept;
        iifname "{cables}" drop
    }}
    chain forward {{
        type filter hook forward priority -10; policy accept;
        oifname "{cables}" ct state established,related oifname vmap @rates
        oifname "{cables}" ct state established,related accept
        oifname "{cables}" drop
        iifname != "{cables}" accept
        iifname vmap @rates
        {names}
        ip daddr {{ {NOT_PUBLIC} }} drop
        meta nfproto ipv6 drop
        accept
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        iifname "{cables}" masquerade
    }}
}}
"#
    );
    run("nft", &["-f", "-"], &text).map_err(|error| error.to_string())?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|error| format!("forward packets: {error}"))
}

/// Bounds what goes over one cable: its connections, and its bytes both ways together. Of these the kernel lets a
/// second's worth through at once.
pub(super) fn limit(host_part: u16, number: u16, max_mbit: Option<u32>) -> io::Result<()> {
    let (table, cable) = (table(host_part), cable(host_part, number));
    let chain = format!("rate_{number}");
    let mut text = format!(
        "add chain inet {table} {chain}\nflush chain inet {table} {chain}\n\
         add rule inet {table} {chain} ct state new ct count over {CONNECTIONS} drop\n\
         add element inet {table} rates {{ \"{cable}\" : jump {chain} }}\n"
    );
    if let Some(mbit) = max_mbit {
        let kbytes = u64::from(mbit) * 125;
        // Some room for a burst, or no connection gets up to its rate.
        text.push_str(&format!(
            "add rule inet {table} {chain} limit rate over {kbytes} kbytes/second burst {} kbytes drop\n",
            (kbytes / 10).max(64)
        ));
    }
    run("nft", &["-f", "-"], &text)
}

/// The host's name servers, which may be on a network that is not public.
fn name_servers() -> Vec<String> {
    crate::isolate::settings::resolvers()
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"))
        .filter_map(|address| address.trim().parse::<Ipv4Addr>().ok())
        .map(|address| address.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_do_not_overlap() {
        let mut seen = std::collections::BTreeSet::new();
        for host_part in [0, 1, 1023] {
            for number in 0..NETWORKS {
                for address in addresses(host_part, number) {
                    assert!(seen.insert(address));
                    let octets = address.octets();
                    assert!(octets[0] == 100 && (64..128).contains(&octets[1]));
                }
                assert!(cable(host_part, number).len() <= 15);
            }
        }
    }
}
