//! Which addresses are public. Agents look at them before they fetch images, the server before it sends webhooks: neither
//! is to be made to knock where those who name the place could not. Pure; who resolves and connects asks here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address can belong to anybody out there: none of this machine's, its neighbours', a carrier's or a
/// group's, and none set apart for other ends.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let apart = match address.octets() {
        [0 | 10 | 127, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [169, 254, ..] | [192, 168, ..] | [192, 0, 0, _] => true,
        [172, second, ..] => second & 0xf0 == 16,
        [198, second, ..] => second & 0xfe == 18,
        [first, ..] => first >= 224,
    };
    !apart
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, ..] = address.segments();
    // The older kind by another name: as such, and through a translator.
    if [a, b, c, d, e] == [0; 5] && f == 0xffff || [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., w, x, y, z] = address.octets();
        return is_public_v4(Ipv4Addr::new(w, x, y, z));
    }
    // 2000::/3 alone is given out; in it 2001::/23 is set apart and 2002::/16 holds the older kind again.
    a & 0xe000 == 0x2000 && !(a == 0x2001 && b < 0x0200) && a != 0x2002 && !(a == 0x2001 && b == 0x0db8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_out_there_is_not_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::8.8.8.8",
            "2001:4860:4860::8888",
            "2606:4700::1111",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
