//! Instances and their inboxes.
//!
//! Each instance has a hash tag of its own, so that the messages between instances are spread over
//! a Cluster. A set elsewhere has the names of all instances.

use futures_util::future::try_join_all;
use lingua_core::InstanceId;
use lingua_store::contract::{
    ADDRESS_BYTES_MAX, AnnounceReply, AnnounceRequest, BusDelivery, Bytes, Envelope, Incarnation,
    InstanceRecord, MESSAGE_BYTES_MAX,
};
use lingua_store::{Result, StoreError};
use redis::Value;

use crate::cluster::instance_change;
use crate::connection::Repeat;
use crate::reply::{ScriptReply, corrupt, number_of};
use crate::script::{ANNOUNCE, RECEIVE, SEND, WITHDRAW};
use crate::store::RedisStore;

/// How long an instance is listed after its last announcement.
const PRESENCE_RECORD_MS: u64 = 24 * 3_600_000;

impl RedisStore {
    pub(crate) async fn announce(&self, p: AnnounceRequest) -> Result<AnnounceReply> {
        let what = "an instance's address in bytes";
        StoreError::check_limit(what, p.address.len(), ADDRESS_BYTES_MAX)?;
        self.list_instance(&p.instance).await?;
        let keys = self.keys.instance(&p.instance);
        let call = ANNOUNCE.call(self.script_ms(), &keys);
        let call = call.arg(p.incarnation.0).arg(&p.address).arg(p.lease_ms);
        let call = call.arg(PRESENCE_RECORD_MS.max(p.lease_ms.saturating_mul(2)));
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        if reply.text()? == "taken" {
            return Ok(AnnounceReply::NameTaken { until_ms: reply.number()? });
        }
        if reply.flag()? {
            // If this fails, the record keeps the mark, and the next announcement publishes it.
            self.publish_change(instance_change(&p.instance).as_bytes()).await?;
            let mut command = redis::cmd("HSET");
            command.arg(&keys[0]).arg("untold").arg(0);
            self.connection.send(&command).await?;
        }
        Ok(AnnounceReply::Present)
    }

    /// Adds a name to the list of instances; removes dead ones to make room.
    async fn list_instance(&self, instance: &InstanceId) -> Result<()> {
        let list = self.keys.instances();
        let mut command = redis::cmd("SISMEMBER");
        command.arg(&list).arg(instance.as_str());
        if number_of(self.connection.send(&command).await?)? == 1 {
            return Ok(());
        }
        let limit = self.limits.instances_max;
        let mut command = redis::cmd("SCARD");
        command.arg(&list);
        if number_of(self.connection.send(&command).await?)? >= limit as u64 {
            let (alive, dead): (Vec<_>, Vec<_>) =
                self.instances().await?.into_iter().partition(|known| known.alive);
            for dead_one in dead {
                self.withdraw(&dead_one.instance, dead_one.incarnation).await?;
            }
            if alive.len() >= limit {
                return Err(StoreError::LimitReached { what: "the number of instances", limit });
            }
        }
        let mut command = redis::cmd("SADD");
        command.arg(&list).arg(instance.as_str());
        self.connection.send(&command).await.map(drop)
    }

    pub(crate) async fn withdraw(
        &self,
        instance: &InstanceId,
        incarnation: Incarnation,
    ) -> Result<bool> {
        let call =
            WITHDRAW.call(self.script_ms(), &self.keys.instance(instance)).arg(incarnation.0);
        if number_of(self.connection.run(&call).await?)? == 0 {
            return Ok(false);
        }
        self.unlist_instance(instance).await?;
        self.publish_change(instance_change(instance).as_bytes()).await?;
        Ok(true)
    }

    async fn unlist_instance(&self, instance: &InstanceId) -> Result<()> {
        let mut command = redis::cmd("SREM");
        command.arg(self.keys.instances()).arg(instance.as_str());
        self.connection.send(&command).await.map(drop)
    }

    pub(crate) async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(self.keys.instances());
        let mut names = ScriptReply::new(self.connection.send(&command).await?)?;
        let mut known = Vec::with_capacity(names.len());
        while !names.is_empty() {
            known.push(names.parse::<InstanceId>()?);
        }
        let now_ms = self.now_ms().await?;
        let views = try_join_all(known.iter().map(|name| self.read_instance(name, now_ms))).await?;
        let mut views: Vec<InstanceRecord> = views.into_iter().flatten().collect();
        views.sort_by(|a, b| a.instance.cmp(&b.instance));
        Ok(views)
    }

    async fn read_instance(
        &self,
        name: &InstanceId,
        now_ms: u64,
    ) -> Result<Option<InstanceRecord>> {
        let [presence, _] = self.keys.instance(name);
        let mut command = redis::cmd("HMGET");
        command.arg(presence).arg(&["incarnation", "address", "until"]);
        let value = self.connection.send(&command).await?;
        if matches!(&value, Value::Array(parts) if parts.contains(&Value::Nil)) {
            // It is on the list, but its record has expired.
            return Ok(None);
        }
        let mut reply = ScriptReply::new(value)?;
        let (incarnation, address) = (Incarnation(reply.number()?), reply.text()?);
        let (instance, until_ms) = (name.clone(), reply.number()?);
        let alive = until_ms >= now_ms;
        Ok(Some(InstanceRecord { instance, incarnation, address, until_ms, alive }))
    }

    /// The test's clock, or else the server's.
    pub(crate) async fn now_ms(&self) -> Result<u64> {
        if let now_ms @ 1.. = self.script_ms() {
            return Ok(now_ms);
        }
        let mut time = ScriptReply::new(self.connection.send(&redis::cmd("TIME")).await?)?;
        Ok(time.number()? * 1000 + time.number()? / 1000)
    }

    pub(crate) async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        StoreError::check_limit("a message in bytes", message.len(), MESSAGE_BYTES_MAX)?;
        let call = SEND.call(self.script_ms(), &self.keys.instance(to));
        let call = call.arg(self.limits.inbox_max).arg(&message[..]);
        match self.connection.run_as(&call, Repeat::Never).await? {
            Value::BulkString(word) => match &word[..] {
                b"sent" => Ok(BusDelivery::Sent),
                b"full" => Ok(BusDelivery::InboxFull),
                _ => Ok(BusDelivery::NoInstance),
            },
            _ => Err(corrupt("a reply to a message that is not a text")),
        }
    }

    pub(crate) async fn receive(
        &self,
        me: &InstanceId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Envelope>> {
        let [_, inbox] = self.keys.instance(me);
        loop {
            let call = RECEIVE.call(self.script_ms(), &[&inbox]).arg(after).arg(limit.max(1));
            let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
            let mut messages = Vec::with_capacity(reply.len() / 2);
            while !reply.is_empty() {
                let (seq, message) = (reply.number()?, reply.bytes()?.into());
                messages.push(Envelope { seq, message });
            }
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.connection.wait_for(&inbox, after).await?;
        }
    }
}
