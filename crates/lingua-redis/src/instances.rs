//! Instances and their inboxes.
//!
//! Each instance has a hash tag of its own, so that the messages between instances are spread over
//! a Cluster. A set elsewhere has the names of all instances.

use futures_util::future::join_all;
use lingua_core::InstanceId;
use lingua_store::contract::{
    ADDRESS_BYTES_MAX, AnnounceReply, AnnounceRequest, BusDelivery, Bytes, Envelope, Incarnation,
    InstanceRecord, MESSAGE_BYTES_MAX,
};
use lingua_store::{Result, StoreError};

use crate::cluster::instance_change;
use crate::connection::Repeat;
use crate::reply::{ScriptReply, convert, parse};
use crate::script::{ANNOUNCE, RECEIVE, SEND, WITHDRAW};
use crate::store::RedisStore;

/// How long an instance is listed after its last announcement.
const PRESENCE_RECORD_MS: u64 = 24 * 3_600_000;

impl RedisStore {
    pub(crate) async fn announce(&self, request: AnnounceRequest) -> Result<AnnounceReply> {
        let AnnounceRequest { instance, incarnation, address, lease_ms } = request;
        let what = "an instance's address in bytes";
        StoreError::check_limit(what, address.len(), ADDRESS_BYTES_MAX)?;
        self.list_instance(&instance).await?;
        let keys = self.keys.instance(&instance);
        let keep_ms = PRESENCE_RECORD_MS.max(lease_ms.saturating_mul(2));
        let args = (incarnation.0, address, lease_ms, keep_ms);
        let mut reply: ScriptReply = self.call(&ANNOUNCE, &keys, args).await?;
        if reply.next::<String>()? == "taken" {
            return Ok(AnnounceReply::NameTaken { until_ms: reply.next()? });
        }
        if reply.next()? {
            // If this fails, the record keeps the mark, and the next announcement publishes it.
            self.publish_change(instance_change(&instance).as_bytes()).await?;
            self.query::<()>(redis::cmd("HSET").arg((&keys[0], "untold", 0))).await?;
        }
        Ok(AnnounceReply::Present)
    }

    /// Adds a name to the list of instances; removes dead ones to make room.
    async fn list_instance(&self, instance: &InstanceId) -> Result<()> {
        let (list, name) = (&self.keys.cluster("instances"), instance.as_str());
        if self.query(redis::cmd("SISMEMBER").arg((list, name))).await? {
            return Ok(());
        }
        let limit = self.options.limits.instances_max;
        let count: usize = self.query(redis::cmd("SCARD").arg(list)).await?;
        if count >= limit {
            let (alive, dead): (Vec<_>, Vec<_>) =
                self.instances().await?.into_iter().partition(|known| known.alive);
            for dead_one in dead {
                self.withdraw(&dead_one.instance, dead_one.incarnation).await?;
            }
            if alive.len() >= limit {
                return Err(StoreError::LimitReached { what: "the number of instances", limit });
            }
        }
        self.query(redis::cmd("SADD").arg((list, name))).await
    }

    pub(crate) async fn withdraw(
        &self,
        instance: &InstanceId,
        incarnation: Incarnation,
    ) -> Result<bool> {
        let keys = self.keys.instance(instance);
        let was_known: bool = self.call(&WITHDRAW, &keys, incarnation.0).await?;
        if was_known {
            let listed = (self.keys.cluster("instances"), instance.as_str());
            self.query::<()>(redis::cmd("SREM").arg(listed)).await?;
            self.publish_change(instance_change(instance).as_bytes()).await?;
        }
        Ok(was_known)
    }

    pub(crate) async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        let names: Vec<String> =
            self.query(redis::cmd("SMEMBERS").arg(self.keys.cluster("instances"))).await?;
        let now_ms = self.now_ms().await?;
        let reads = names.iter().map(|name| self.read_instance(name, now_ms));
        let records = self.all_readable(join_all(reads).await)?;
        let mut records: Vec<InstanceRecord> = records.into_iter().flatten().collect();
        records.sort_by(|a, b| a.instance.cmp(&b.instance));
        Ok(records)
    }

    async fn read_instance(&self, name: &str, now_ms: u64) -> Result<Option<InstanceRecord>> {
        let instance: InstanceId = parse(name)?;
        let [presence, _] = self.keys.instance(&instance);
        let mut command = redis::cmd("HMGET");
        command.arg((presence, "incarnation", "address", "until"));
        let fields: (Option<u64>, Option<String>, Option<u64>) = self.query(&command).await?;
        let (Some(incarnation), Some(address), Some(until_ms)) = fields else {
            // It is on the list, but its record has expired.
            return Ok(None);
        };
        let (incarnation, alive) = (Incarnation(incarnation), until_ms >= now_ms);
        Ok(Some(InstanceRecord { instance, incarnation, address, until_ms, alive }))
    }

    /// The test's clock, or else the server's.
    pub(crate) async fn now_ms(&self) -> Result<u64> {
        if let now_ms @ 1.. = self.script_ms() {
            return Ok(now_ms);
        }
        let (seconds, micros): (u64, u64) = self.query(&redis::cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    pub(crate) async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        StoreError::check_limit("a message in bytes", message.len(), MESSAGE_BYTES_MAX)?;
        let args = (self.options.limits.inbox_max, &message[..]);
        let command = SEND.command(self.script_ms(), &self.keys.instance(to), args);
        let reply = self.connection.run(Some(&SEND), &command, Repeat::Never).await?;
        Ok(match convert::<String>(reply)?.as_str() {
            "sent" => BusDelivery::Sent,
            "full" => BusDelivery::InboxFull,
            _ => BusDelivery::NoInstance,
        })
    }

    pub(crate) async fn receive(
        &self,
        me: &InstanceId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Envelope>> {
        let [_, inbox] = self.keys.instance(me);
        loop {
            let received: Vec<(u64, Vec<u8>)> =
                self.call(&RECEIVE, &[&inbox], (after, limit.max(1))).await?;
            if !received.is_empty() {
                let envelope = |(seq, bytes)| Envelope { seq, message: Vec::<u8>::into(bytes) };
                return Ok(received.into_iter().map(envelope).collect());
            }
            self.connection.wait_for(&inbox, after).await?;
        }
    }
}
