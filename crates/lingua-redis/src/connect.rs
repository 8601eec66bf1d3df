//! Opens connections: to one server, to the master that the sentinels name, or to a Cluster.
//!
//! Start at [`RedisOptions::connect`].

use std::collections::BTreeMap;
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

use crate::options::RedisOptions;
use crate::url::{Address, Login, Topology};

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

    /// The reply of each master to `INFO section`, by address; a single server has an empty one.
    pub(crate) async fn info(&mut self, section: &str) -> RedisResult<BTreeMap<String, String>> {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        match self {
            Self::Single(connection) => {
                Ok(BTreeMap::from([(String::new(), command.query_async(connection).await?)]))
            }
            Self::Cluster(connection) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                Ok(redis::from_redis_value(connection.route_command(command, masters).await?)?)
            }
        }
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

impl RedisOptions {
    /// Checks what can be checked without a server.
    pub(crate) fn check(&self) -> RedisResult<()> {
        self.url.addresses.iter().try_for_each(|at| self.client(self.info(at)?).map(drop))
    }

    /// Opens a connection within the timeout.
    pub(crate) async fn connect(&self, purpose: Purpose) -> RedisResult<RawConnection> {
        let connected = tokio::time::timeout(self.timeouts.connect, self.connect_untimed(purpose));
        connected.await.map_err(std::io::Error::from)?
    }

    async fn connect_untimed(&self, purpose: Purpose) -> RedisResult<RawConnection> {
        let mut failure = RedisError::from((ErrorKind::Client, "the store URL names no server"));
        for address in &self.url.addresses {
            let connected = match &self.url.topology {
                Topology::Standalone => self.connect_server(address, purpose).await,
                Topology::Sentinel { master, login } => {
                    self.connect_master(address, master, login, purpose).await
                }
                Topology::Cluster => return self.connect_cluster(purpose).await,
            };
            match connected {
                Ok(connection) => return Ok(RawConnection::Single(connection)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn connect_server(
        &self,
        address: &Address,
        purpose: Purpose,
    ) -> RedisResult<MultiplexedConnection> {
        let reply = self.reply_timeout(purpose);
        self.open(self.info(address)?, self.timeouts.connect, reply).await
    }

    /// Asks a sentinel for the master, and checks that it is one.
    async fn connect_master(
        &self,
        sentinel: &Address,
        master: &str,
        login: &Login,
        purpose: Purpose,
    ) -> RedisResult<MultiplexedConnection> {
        // A sentinel that does not reply must leave time for the others.
        let timeout = self.timeouts.connect / 4;
        let info = self.info_for(sentinel, login_settings(login))?;
        let mut asked = self.open(info, timeout, timeout).await?;
        let named: Option<(String, u16)> = redis::cmd("SENTINEL")
            .arg(("GET-MASTER-ADDR-BY-NAME", master))
            .query_async(&mut asked)
            .await?;
        let (host, port) = named.ok_or((
            ErrorKind::MasterNameNotFoundBySentinel,
            "the sentinels do not know a master with this name",
        ))?;
        let mut connection = self.connect_server(&Address { host, port }, purpose).await?;
        let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
        if role.first() != Some(&Value::BulkString(b"master".into())) {
            let detail = "the server that the sentinels name is no master";
            return Err((ErrorKind::Client, detail).into());
        }
        Ok(connection)
    }

    async fn connect_cluster(&self, purpose: Purpose) -> RedisResult<RawConnection> {
        let infos: RedisResult<Vec<_>> =
            self.url.addresses.iter().map(|at| self.info(at)).collect();
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
        connect_timeout: Duration,
        reply_timeout: Duration,
    ) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(Some(reply_timeout));
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

    fn info(&self, server: &Address) -> RedisResult<ConnectionInfo> {
        let database = i64::from(self.url.database);
        self.info_for(server, login_settings(&self.url.login).set_db(database))
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
