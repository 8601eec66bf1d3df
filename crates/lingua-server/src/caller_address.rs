//! The address of a caller behind proxies.
//!
//! Start at `TrustedProxies::caller`. A proxy that is trusted says for whom it calls: with
//! `X-Forwarded-For`, or with the PROXY protocol (`proxied_peer`). What it says replaces the
//! peer's address in the request, so that limits, logs and the audit see the caller.
//!
//! Invariant: only trusted proxies are believed. Of `X-Forwarded-For` the right-most address that
//! is not a trusted proxy counts: what stands left of it may be invented by the caller.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt};

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Most bytes of a header of the PROXY protocol, version 1, by its specification.
const V1_BYTES_MAX: usize = 107;

/// Most bytes of the addresses and further fields of version 2.
const V2_BYTES_MAX: usize = 1024;

/// The bytes that a header of version 2 begins with.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A network, such as `10.0.0.0/8`; an address without `/` is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: u128,
    mask: u128,
}

/// The text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network; write it as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7")]
pub struct AddressRangeError(String);

/// IPv4 addresses as IPv6 has them, so that both compare.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let parse = || {
            let (address, length) = match text.split_once('/') {
                Some((address, length)) => (address, Some(length.parse::<u32>().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let of_family = if address.is_ipv4() { 32 } else { 128 };
            let length = length.unwrap_or(of_family);
            let any = of_family.checked_sub(length)?;
            let mask = u128::MAX.checked_shl(any).unwrap_or(0);
            Some(Self { first: bits(address) & mask, mask })
        };
        parse().ok_or_else(|| AddressRangeError(text.to_owned()))
    }
}

impl AddressRange {
    fn contains(self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.first
    }
}

/// The proxies that are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<AddressRange>);

impl TrustedProxies {
    /// These networks.
    pub fn new(networks: Vec<AddressRange>) -> Self {
        Self(networks)
    }

    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this address is a trusted proxy's.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The address of the caller: the peer's, or what trusted proxies say in its place.
    pub(crate) fn caller(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if self.0.is_empty() || !self.trusts(peer.ip()) {
            return peer;
        }
        let lists = headers.get_all(FORWARDED_FOR).iter().rev();
        let names = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.rsplit(','));
        let mut caller = peer;
        for name in names {
            // What cannot be read was not written by a proxy that knows whom it calls for.
            let Some(address) = forwarded(name.trim()) else { return caller };
            caller = SocketAddr::new(address, 0);
            if !self.trusts(address) {
                return caller;
            }
        }
        caller
    }
}

/// An address as proxies write it: some add a port.
fn forwarded(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let with_port = || name.parse::<SocketAddr>().map(|address| address.ip());
    bare.parse().or_else(|_| with_port()).ok()
}

/// Reads the header of the PROXY protocol with which a trusted proxy begins a connection. `None`
/// if the proxy speaks for itself.
pub(crate) async fn proxied_peer(
    io: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; V2_SIGNATURE.len()];
    io.read_exact(&mut start).await?;
    match &start == V2_SIGNATURE {
        true => read_v2(io).await,
        false => read_v1(io, &start).await,
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no valid header of the PROXY protocol")
}

async fn read_v1(
    io: &mut (impl AsyncRead + Unpin),
    start: &[u8],
) -> io::Result<Option<SocketAddr>> {
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= V1_BYTES_MAX || !line.starts_with(b"PROXY ") {
            return Err(malformed());
        }
        // The bytes after the line belong to the request.
        line.push(io.read_u8().await?);
    }
    let line = std::str::from_utf8(&line).map_err(|_| malformed())?;
    let mut words = line.trim_end().split(' ').skip(1);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("UNKNOWN"), ..) => Ok(None),
        (Some("TCP4" | "TCP6"), Some(source), Some(_), Some(port)) => {
            let address = source.parse().map_err(|_| malformed())?;
            Ok(Some(SocketAddr::new(address, port.parse().map_err(|_| malformed())?)))
        }
        _ => Err(malformed()),
    }
}

async fn read_v2(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let (version, family) = (io.read_u8().await?, io.read_u8().await?);
    let mut rest = vec![0; usize::from(io.read_u16().await?)];
    if version >> 4 != 2 || rest.len() > V2_BYTES_MAX {
        return Err(malformed());
    }
    io.read_exact(&mut rest).await?;
    let port = |at: usize| rest.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let source = match (version & 0x0F, family >> 4) {
        // The proxy checks whether the server is alive.
        (0, _) => return Ok(None),
        (1, 1) => rest.first_chunk::<4>().map(|v4| IpAddr::from(Ipv4Addr::from(*v4))).zip(port(8)),
        (1, 2) => {
            rest.first_chunk::<16>().map(|v6| IpAddr::from(Ipv6Addr::from(*v6))).zip(port(32))
        }
        (1, _) => return Ok(None),
        _ => None,
    };
    source.map(|(address, port)| Some(SocketAddr::new(address, port))).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn proxies() -> TrustedProxies {
        let networks = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"];
        TrustedProxies::new(networks.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn caller(peer: &str, forwarded: &[&str]) -> String {
        let name = HeaderName::from_static(FORWARDED_FOR);
        let headers = forwarded.iter().map(|v| (name.clone(), HeaderValue::from_str(v).unwrap()));
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        proxies().caller(peer, &headers.collect()).ip().to_string()
    }

    #[test]
    fn networks_are_read_and_compared() {
        let network = |text: &str| text.parse::<AddressRange>().unwrap();
        assert!(network("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(network("10.0.0.0/8").contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(!network("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(network("0.0.0.0/0").contains("203.0.113.9".parse().unwrap()));
        assert!(!network("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        assert!(network("::/0").contains("2001:db8::1".parse().unwrap()));
        for bad in ["", "10.0.0.0/33", "ten/8", "10.0.0.0/-1", "::/129"] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_right_most_untrusted_address_is_the_caller() {
        assert_eq!(caller("10.1.1.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(caller("10.1.1.1", &["1.2.3.4, 203.0.113.9, 10.2.2.2"]), "203.0.113.9");
        assert_eq!(caller("10.1.1.1", &["1.2.3.4", "203.0.113.9"]), "203.0.113.9");
        assert_eq!(caller("10.1.1.1", &["[2001:db9::1]:443"]), "2001:db9::1");
        assert_eq!(caller("10.1.1.1", &[]), "10.1.1.1");
        assert_eq!(caller("10.1.1.1", &["203.0.113.9, unknown"]), "10.1.1.1");
        assert_eq!(caller("203.0.113.1", &["1.2.3.4"]), "203.0.113.1", "not a trusted proxy");
    }

    #[tokio::test]
    async fn headers_of_the_proxy_protocol_are_read_to_their_end() {
        let mut v2 = V2_SIGNATURE.to_vec();
        v2.extend([0x21, 0x11, 0, 12, 203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
        let mut local = V2_SIGNATURE.to_vec();
        local.extend([0x20, 0, 0, 0]);
        let found = Some("203.0.113.9:4711".parse().unwrap());
        let cases: [(&[u8], Option<SocketAddr>); 4] = [
            (b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 80\r\n", found),
            (b"PROXY UNKNOWN\r\n", None),
            (&v2, found),
            (&local, None),
        ];
        for (header, expected) in cases {
            let bytes = [header, b"GET / HTTP/1.1"].concat();
            let mut io = &bytes[..];
            assert_eq!(proxied_peer(&mut io).await.unwrap(), expected);
            assert_eq!(io, b"GET / HTTP/1.1");
        }
        let long = [&b"PROXY TCP4 "[..], &[b' '; 200]].concat();
        for bad in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 x y z 1\r\n", &long, b"PROXY"] {
            assert!(proxied_peer(&mut &bad[..]).await.is_err());
        }
    }
}
