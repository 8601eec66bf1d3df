//! Store URLs: where the servers are and how to log in.
//!
//! Start at [`StoreUrl::from_str`](std::str::FromStr).
//!
//! | URL | meaning |
//! |---|---|
//! | `redis://user:password@host:port/db` | one server |
//! | `redis+sentinel://h1:p,h2:p/master-name/db` | the master that these sentinels name |
//! | `redis+cluster://h1:p,h2:p` | a Cluster, given by any of its servers |
//!
//! `rediss` instead of `redis` means TLS. Invariant: a password is never shown, not in errors nor
//! by `Debug`.

use std::fmt;
use std::str::FromStr;

/// The port of a server if none is given.
const PORT: u16 = 6379;

/// The port of a sentinel if none is given.
const SENTINEL_PORT: u16 = 26_379;

/// Most servers in one URL.
const ADDRESSES_MAX: usize = 64;

/// Why a text is not a store URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is unknown.
    #[error(
        "a store URL begins with embedded:, redis://, rediss://, redis+sentinel:// or \
         redis+cluster://"
    )]
    Scheme,
    /// It names no server.
    #[error("the store URL names no host; write for example redis://127.0.0.1:6379/0")]
    NoHost,
    /// The port is not a number from 1 to 65535.
    #[error("the port {0:?} in the store URL is not a number from 1 to 65535")]
    Port(String),
    /// It names too many servers.
    #[error("the store URL names {0} servers; {1}")]
    Count(usize, &'static str),
    /// The database is not a number from 0 to 9999.
    #[error("the database {0:?} in the store URL is not a number from 0 to 9999")]
    Database(String),
    /// The master's name is missing.
    #[error("a sentinel URL ends with the master's name: redis+sentinel://host:26379/mymaster")]
    NoMaster,
    /// A Cluster has only the database 0.
    #[error("a Cluster has no databases: leave {0:?} out of the store URL")]
    ClusterDatabase(String),
    /// A '%' is not followed by two hexadecimal digits.
    #[error("user or password in the store URL have a '%' that is not followed by two hex digits")]
    Escape,
    /// A parameter is unknown.
    #[error(
        "the store URL has the unknown parameter {0:?}; known are sentinel_user, sentinel_password"
    )]
    Parameter(String),
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address.
    pub host: String,
    /// From 1 to 65535.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// User and password. Without a user it is the default user.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// A user of the access control list.
    pub user: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

/// How the servers work together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Topology {
    /// One server at a fixed address.
    Standalone,
    /// The addresses are of sentinels, which are asked one after the other for the master.
    Sentinel { master: String, login: Login },
    /// Several servers that divide the keys among them.
    Cluster,
}

/// A parsed store URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// How the servers work together.
    pub topology: Topology,
    /// The servers or sentinels, at least one.
    pub addresses: Vec<Address>,
    /// Whether connections use TLS.
    pub tls: bool,
    /// The login at the servers.
    pub login: Login,
    /// The number of the database.
    pub database: u16,
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match base {
            "redis" => false,
            "rediss" => true,
            _ => return Err(UrlError::Scheme),
        };
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (read_login(login)?, hosts),
            None => (Login::default(), authority),
        };
        let path = path.trim_end_matches('/');
        let (mut topology, port, database) = match kind {
            "" => (Topology::Standalone, PORT, path),
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(UrlError::NoMaster);
                }
                let (master, login) = (master.to_owned(), Login::default());
                (Topology::Sentinel { master, login }, SENTINEL_PORT, database)
            }
            "cluster" if matches!(path, "" | "0") => (Topology::Cluster, PORT, path),
            "cluster" => return Err(UrlError::ClusterDatabase(path.to_owned())),
            _ => return Err(UrlError::Scheme),
        };
        let addresses = read_addresses(hosts, port)?;
        if topology == Topology::Standalone && addresses.len() > 1 {
            let instead = "for several use redis+sentinel:// or redis+cluster://";
            return Err(UrlError::Count(addresses.len(), instead));
        }
        read_parameters(parameters, &mut topology)?;
        Ok(Self { topology, addresses, tls, login, database: read_database(database)? })
    }
}

impl fmt::Display for StoreUrl {
    /// Without user and password, for people and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = if self.tls { "rediss" } else { "redis" };
        let addresses: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        let (addresses, database) = (addresses.join(","), self.database);
        match &self.topology {
            Topology::Standalone => write!(f, "{base}://{addresses}/{database}"),
            Topology::Sentinel { master, .. } => {
                write!(f, "{base}+sentinel://{addresses}/{master}/{database}")
            }
            Topology::Cluster => write!(f, "{base}+cluster://{addresses}"),
        }
    }
}

fn read_login(text: &str) -> Result<Login, UrlError> {
    let (user, password) = text.split_once(':').map_or((text, None), |(u, p)| (u, Some(p)));
    let user = Some(user).filter(|user| !user.is_empty()).map(unescape).transpose()?;
    Ok(Login { user, password: password.map(unescape).transpose()? })
}

/// Only the sentinels have parameters: another login than the servers.
fn read_parameters(text: &str, topology: &mut Topology) -> Result<(), UrlError> {
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (name, &mut *topology) {
            ("sentinel_user", Topology::Sentinel { login, .. }) => {
                login.user = Some(unescape(value)?);
            }
            ("sentinel_password", Topology::Sentinel { login, .. }) => {
                login.password = Some(unescape(value)?);
            }
            _ => return Err(UrlError::Parameter(name.to_owned())),
        }
    }
    Ok(())
}

fn read_addresses(text: &str, default_port: u16) -> Result<Vec<Address>, UrlError> {
    let count = text.split(',').count();
    if count > ADDRESSES_MAX {
        return Err(UrlError::Count(count, "at most 64 are allowed"));
    }
    text.split(',').map(|one| read_address(one, default_port)).collect()
}

fn read_address(text: &str, default_port: u16) -> Result<Address, UrlError> {
    // An IPv6 address has colons of its own and stands in brackets.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(number @ 1..) => number,
            _ => return Err(UrlError::Port(port.to_owned())),
        },
    };
    Ok(Address { host: host.to_owned(), port })
}

fn read_database(text: &str) -> Result<u16, UrlError> {
    match text.parse() {
        _ if text.is_empty() => Ok(0),
        Ok(number @ 0..=9999) => Ok(number),
        _ => Err(UrlError::Database(text.to_owned())),
    }
}

fn unescape(text: &str) -> Result<String, UrlError> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or(UrlError::Escape)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| UrlError::Escape)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Escape)
}

#[cfg(test)]
mod tests;
