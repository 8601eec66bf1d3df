//! Opens connections: to one server, to the master that the sentinels name, or to a Cluster.
//!
//! Start at [`Connector::connect`].

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
    Value,
};

use crate::options::{CallTimeouts, RedisOptions};
use crate::url::{Address, Login, StoreUrl, Topology};

/// Retries of a Cluster connection after a redirection or while slots move.
const CLUSTER_RETRIES: u32 = 4;

/// Shortest and longest pause between two retries.
const CLUSTER_WAIT_MS: (u64, u64) = (20, 200);

/// An open connection. Clones share it; what they send is pipelined.
#[derive(Clone)]
pub(crate) enum RawConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl RawConnection {
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let value = match self {
            Self::Single(connection) => connection.req_packed_command(command).await,
            Self::Cluster(connection) => connection.req_packed_command(command).await,
        };
        value.and_then(Value::extract_error)
    }

    /// Sends a command to every master; returns the replies by address.
    pub(crate) async fn send_to_masters(
        &mut self,
        command: Cmd,
    ) -> RedisResult<Vec<(String, Value)>> {
        let connection = match self {
            Self::Single(connection) => {
                let value = connection.req_packed_command(&command).await?;
                return Ok(vec![(String::new(), value.extract_error()?)]);
            }
            Self::Cluster(connection) => connection,
        };
        let all_masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let Value::Map(replies) = connection.route_command(command, all_masters).await? else {
            return Err((
                ErrorKind::UnexpectedReturnType,
                "a command to all masters returns a map",
            )
                .into());
        };
        let name = |key| match key {
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::SimpleString(text) => text,
            other => format!("{other:?}"),
        };
        Ok(replies.into_iter().map(|(key, value)| (name(key), value)).collect())
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Calls whose replies come at once.
    Calls,
    /// Reads that block on the server, so that no other command may follow them.
    Waiting,
}

/// Opens connections with these addresses, logins and certificates.
#[derive(Debug)]
pub(crate) struct Connector {
    url: StoreUrl,
    timeouts: CallTimeouts,
    tls_ca: Option<Vec<u8>>,
}

impl Connector {
    pub(crate) fn new(options: &RedisOptions) -> Self {
        let (url, tls_ca) = (options.url.clone(), options.tls_ca.clone());
        Self { url, timeouts: options.timeouts, tls_ca }
    }

    /// Checks what can be checked without a server.
    pub(crate) fn check(&self) -> RedisResult<()> {
        match &self.url.topology {
            Topology::Standalone(address) => self.client(self.info(address)?).map(drop),
            Topology::Sentinel { sentinels, .. } => {
                sentinels.iter().try_for_each(|at| self.client(self.info(at)?).map(drop))
            }
            Topology::Cluster(addresses) => {
                let infos: RedisResult<Vec<_>> = addresses.iter().map(|at| self.info(at)).collect();
                ClusterClientBuilder::new(infos?).build().map(drop)
            }
        }
    }

    /// Opens a connection within the timeout.
    pub(crate) async fn connect(&self, purpose: Purpose) -> RedisResult<RawConnection> {
        let connected = tokio::time::timeout(self.timeouts.connect, self.connect_untimed(purpose));
        connected.await.unwrap_or_else(|_| {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Err(RedisError::from(late))
        })
    }

    async fn connect_untimed(&self, purpose: Purpose) -> RedisResult<RawConnection> {
        match &self.url.topology {
            Topology::Standalone(address) => {
                Ok(RawConnection::Single(self.open(self.info(address)?, purpose).await?))
            }
            Topology::Sentinel { sentinels, master, login } => {
                self.connect_master(sentinels, master, login, purpose).await
            }
            Topology::Cluster(addresses) => self.connect_cluster(addresses, purpose).await,
        }
    }

    /// The timeout of a reply on a connection for this purpose.
    fn reply_timeout(&self, purpose: Purpose) -> Duration {
        match purpose {
            Purpose::Calls => self.timeouts.reply,
            Purpose::Waiting => self.timeouts.reply + self.timeouts.block,
        }
    }

    async fn open(
        &self,
        info: ConnectionInfo,
        purpose: Purpose,
    ) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect))
            .set_response_timeout(Some(self.reply_timeout(purpose)));
        self.client(info)?.get_multiplexed_async_connection_with_config(&config).await
    }

    fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    fn certificates(&self) -> Option<TlsCertificates> {
        let root_cert = self.tls_ca.clone().filter(|_| self.url.tls)?;
        Some(TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
    }

    fn info(&self, address: &Address) -> RedisResult<ConnectionInfo> {
        let database = i64::from(self.url.database);
        self.info_for(address, login_settings(&self.url.login).set_db(database))
    }

    fn info_for(
        &self,
        address: &Address,
        settings: RedisConnectionInfo,
    ) -> RedisResult<ConnectionInfo> {
        let Address { host, port } = address.clone();
        let address = match self.url.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }

    /// Asks the sentinels one after the other for the master, and checks that it is one.
    async fn connect_master(
        &self,
        sentinels: &[Address],
        master: &str,
        login: &Login,
        purpose: Purpose,
    ) -> RedisResult<RawConnection> {
        let mut failure = RedisError::from((ErrorKind::EmptySentinelList, "no sentinel is named"));
        for sentinel in sentinels {
            match self.connect_named(sentinel, master, login, purpose).await {
                Ok(connection) => return Ok(RawConnection::Single(connection)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn connect_named(
        &self,
        sentinel: &Address,
        master: &str,
        login: &Login,
        purpose: Purpose,
    ) -> RedisResult<MultiplexedConnection> {
        // A sentinel that does not reply must leave time for the others.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeouts.connect / 4))
            .set_response_timeout(Some(self.timeouts.connect / 4));
        let info = self.info_for(sentinel, login_settings(login))?;
        let mut asked =
            self.client(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        let named: Option<(String, u16)> = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(master)
            .query_async(&mut asked)
            .await?;
        let (host, port) = named.ok_or((
            ErrorKind::MasterNameNotFoundBySentinel,
            "the sentinels do not know a master with this name",
        ))?;
        let mut connection = self.open(self.info(&Address { host, port })?, purpose).await?;
        let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
        match role {
            Value::Array(parts) if parts.first() == Some(&Value::BulkString(b"master".into())) => {
                Ok(connection)
            }
            _ => Err((ErrorKind::Client, "the server that the sentinels name is no master").into()),
        }
    }

    async fn connect_cluster(
        &self,
        addresses: &[Address],
        purpose: Purpose,
    ) -> RedisResult<RawConnection> {
        let infos: RedisResult<Vec<_>> = addresses.iter().map(|at| self.info(at)).collect();
        let mut builder = ClusterClientBuilder::new(infos?)
            .connection_timeout(self.timeouts.connect)
            .response_timeout(self.reply_timeout(purpose))
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(CLUSTER_WAIT_MS.0)
            .max_retry_wait(CLUSTER_WAIT_MS.1);
        if self.url.tls {
            builder = builder.tls(TlsMode::Secure);
        }
        if let Some(certificates) = self.certificates() {
            builder = builder.certs(certificates);
        }
        Ok(RawConnection::Cluster(builder.build()?.get_async_connection().await?))
    }
}

fn login_settings(login: &Login) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default();
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &login.password {
        settings = settings.set_password(password);
    }
    settings
}
