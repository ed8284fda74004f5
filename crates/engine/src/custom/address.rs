//! Which addresses may be connected to on behalf of somebody else.
//!
//! Whoever may create a run says which endpoint is called, and the controllers stand where that person may not: inside the
//! cluster, beside the metadata service of the cloud. So only addresses of the public internet are connected to, unless an
//! operator has said otherwise. The check is on the address, not on the name, because a name can mean any address.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use thiserror::Error;

/// A range of addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    const fn v6(first: u16, second: u16, prefix: u8) -> Self {
        Self {
            base: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)),
            prefix,
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let differ = base.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let differ = base.to_bits() ^ address.to_bits();
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// A text that is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is no range of addresses")]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    /// Reads `10.0.0.0/8`, `fd00::/8`, or one address.
    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| NoNetwork)?,
            None => longest,
        };
        if prefix > longest {
            return Err(NoNetwork);
        }
        Ok(Self { base, prefix })
    }
}

/// What is not of the public internet, and why. The first row that fits is told.
#[rustfmt::skip] // It is read as a table.
const CLOSED: &[(Network, &str)] = &[
    (Network::v4(0, 0, 0, 0, 8), "an unspecified address"),
    (Network::v4(127, 0, 0, 0, 8), "a loopback address"),
    (Network::v4(169, 254, 0, 0, 16), "a link-local address, where clouds keep their metadata"),
    (Network::v4(10, 0, 0, 0, 8), "a private address"),
    (Network::v4(172, 16, 0, 0, 12), "a private address"),
    (Network::v4(192, 168, 0, 0, 16), "a private address"),
    (Network::v4(100, 64, 0, 0, 10), "an address shared behind a provider"),
    (Network::v4(192, 0, 0, 0, 24), "an address for protocols"),
    (Network::v4(192, 0, 2, 0, 24), "an address for documentation"),
    (Network::v4(198, 18, 0, 0, 15), "an address for benchmarks"),
    (Network::v4(198, 51, 100, 0, 24), "an address for documentation"),
    (Network::v4(203, 0, 113, 0, 24), "an address for documentation"),
    (Network::v4(224, 0, 0, 0, 4), "a multicast address"),
    (Network::v4(240, 0, 0, 0, 4), "a reserved address"),
    (Network::v6(0xfe80, 0, 10), "a link-local address"),
    (Network::v6(0xfec0, 0, 10), "a site-local address"),
    (Network::v6(0xfc00, 0, 7), "a private address"),
    (Network::v6(0xff00, 0, 8), "a multicast address"),
    (Network::v6(0x0100, 0, 64), "an address that leads nowhere"),
    (Network::v6(0x2001, 0, 32), "an address of a tunnel"),
    (Network::v6(0x2001, 0xdb8, 32), "an address for documentation"),
];

/// Why an address may not be connected to; `None` if it may.
pub fn refusal(address: IpAddr, open: &[Network]) -> Option<&'static str> {
    let address = meant(address);
    if open.iter().any(|network| network.contains(address)) {
        return None;
    }
    if let IpAddr::V6(v6) = address {
        if v6.is_unspecified() {
            return Some("an unspecified address");
        }
        if v6.is_loopback() {
            return Some("a loopback address");
        }
    }
    let closed = CLOSED.iter().find(|(network, _)| network.contains(address));
    closed.map(|(_, what)| *what)
}

/// The address that is reached in the end: some IPv6 addresses stand for an IPv4 address.
fn meant(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if v6.is_unspecified() || v6.is_loopback() {
        return address;
    }
    let v4 = |high: u16, low: u16| {
        let [one, two] = high.to_be_bytes();
        let [three, four] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(one, two, three, four))
    };
    match v6.segments() {
        // Mapped (::ffff:1.2.3.4), translated (::ffff:0:1.2.3.4), the old compatible form (::1.2.3.4), NAT64, and 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, _, _, _, _, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str, open: &[&str]) -> Option<&'static str> {
        let open: Vec<Network> = open.iter().map(|text| text.parse().unwrap()).collect();
        refusal(address.parse().unwrap(), &open)
    }

    #[test]
    fn what_is_not_of_the_public_internet_is_refused_in_every_form() {
        for (address, word) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("::", "unspecified"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:0:127.0.0.1", "loopback"),
            ("::127.0.0.1", "loopback"),
            ("64:ff9b::7f00:1", "loopback"),
            ("2002:7f00:1::", "loopback"),
            ("10.0.0.1", "private"),
            ("::ffff:10.0.0.1", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("fd12:3456::1", "private"),
            ("fd00:ec2::254", "private"),
            ("100.64.0.1", "shared"),
            ("169.254.169.254", "metadata"),
            ("::ffff:169.254.169.254", "metadata"),
            ("64:ff9b::a9fe:a9fe", "metadata"),
            ("2002:a9fe:a9fe::", "metadata"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("192.0.0.8", "protocols"),
            ("192.0.2.1", "documentation"),
            ("198.18.0.1", "benchmarks"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.9", "documentation"),
            ("2001:db8::1", "documentation"),
            ("2001::1", "tunnel"),
            ("100::1", "nowhere"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("ff02::1", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
        ] {
            let found = refused(address, &[]);
            assert!(
                found.is_some_and(|what| what.contains(word)),
                "{address}: {found:?}"
            );
        }
    }

    #[test]
    fn the_public_internet_may_be_reached() {
        for address in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "169.253.0.1",
            "192.167.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
        ] {
            assert_eq!(refused(address, &[]), None, "{address}");
        }
    }

    #[test]
    fn an_operator_opens_a_range_and_nothing_beside_it() {
        let open = ["10.1.0.0/16", "::1", "127.0.0.1"];
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "::1", "127.0.0.1"] {
            assert_eq!(refused(address, &open), None, "{address}");
        }
        for address in ["10.2.0.1", "127.0.0.2", "169.254.169.254", "fd00::1"] {
            assert!(refused(address, &open).is_some(), "{address}");
        }
    }

    #[test]
    fn only_ranges_of_addresses_are_read() {
        for text in ["10.0.0.0/8", "fd00::/8", "1.2.3.4", "0.0.0.0/0", "::/0"] {
            assert!(text.parse::<Network>().is_ok(), "{text}");
        }
        for text in [
            "",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0/8",
            "example.com",
            "10.0.0.0/",
            "10.0.0.0/-1",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NoNetwork), "{text}");
        }
    }
}
