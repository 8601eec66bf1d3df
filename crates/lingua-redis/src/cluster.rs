//! Leader, pool table and change feed. They are neighbours, so that a change of the first two is
//! told in the same step in which it is made.

use lingua_core::{CellId, Epoch, InstanceId, NodeId, Slot, Term};
use lingua_store::contract::{
    Change, Changes, ElectReply, ElectRequest, PublishReply, PublishRequest, PublishedTable,
    TABLE_BYTES_MAX,
};
use lingua_store::{Result, StoreError};
use redis::Value;

use crate::reply::{ScriptReply, corrupt, number_of};
use crate::script::{ELECT, FEED_ADD, FEED_READ, PUBLISH, RESIGN};
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn elect(&self, request: ElectRequest) -> Result<ElectReply> {
        let [feed, head] = self.keys.feed();
        let call = ELECT.call(self.script_ms(), &[self.keys.leader(), feed, head]);
        let call = call.arg(request.instance.as_str()).arg(request.incarnation.0);
        let call = call.arg(request.lease_ms).arg(self.limits.feed_max);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        let (leading, leader) = (reply.flag()?, reply.parse::<InstanceId>()?);
        let (term, until_ms) = (Term(reply.number()?), reply.number()?);
        Ok(match leading {
            true => ElectReply::Leading { term, until_ms },
            false => ElectReply::Following { leader, term, until_ms },
        })
    }

    pub(crate) async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        let call = RESIGN.call(self.script_ms(), &[self.keys.leader()]);
        let call = call.arg(instance.as_str()).arg(term.0);
        Ok(number_of(self.connection.run(&call).await?)? == 1)
    }

    pub(crate) async fn publish(&self, publish: PublishRequest) -> Result<PublishReply> {
        let bytes = publish.table.len();
        StoreError::check_limit("the pool table in bytes", bytes, TABLE_BYTES_MAX)?;
        let [feed, head] = self.keys.feed();
        let call =
            PUBLISH.call(self.script_ms(), &[self.keys.leader(), self.keys.table(), feed, head]);
        let call = call.arg(publish.instance.as_str()).arg(publish.term.0).arg(publish.replaces);
        let call = call.arg(&publish.table[..]).arg(self.limits.feed_max);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        Ok(match reply.text()?.as_str() {
            "published" => PublishReply::Published(reply.number()?),
            "conflict" => PublishReply::Conflict(reply.number()?),
            _ => PublishReply::NotLeader,
        })
    }

    pub(crate) async fn table(&self) -> Result<Option<PublishedTable>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.table()).arg(&["version", "term", "published", "table"]);
        let value = self.connection.send(&command).await?;
        if matches!(&value, Value::Array(parts) if parts.contains(&Value::Nil)) {
            return Ok(None);
        }
        let mut reply = ScriptReply::new(value)?;
        let (version, term, published_ms) =
            (reply.number()?, Term(reply.number()?), reply.number()?);
        Ok(Some(PublishedTable { version, term, published_ms, table: reply.bytes()?.into() }))
    }

    /// Publishes a node's change on the feed, and removes it from the cell's list. If that fails
    /// the change stays there, and the next clean-up publishes it: no reply waits for it.
    pub(crate) async fn publish_node_change(&self, cell: CellId, change: Vec<u8>) {
        if change.is_empty() {
            return;
        }
        let published = async {
            self.publish_change(&change).await?;
            let mut command = redis::cmd("LREM");
            command.arg(&self.keys.cell(cell).unpublished).arg(1).arg(&change);
            self.connection.send(&command).await
        };
        if let Err(error) = published.await {
            tracing::warn!(%error, %cell, "the change of a node will be published later");
        }
    }

    pub(crate) async fn publish_change(&self, change: &[u8]) -> Result<()> {
        let call = FEED_ADD.call(self.script_ms(), &self.keys.feed());
        let call = call.arg(self.limits.feed_max).arg(change);
        self.connection.run(&call).await.map(drop)
    }

    pub(crate) async fn feed_head(&self) -> Result<u64> {
        let [_, head] = self.keys.feed();
        let mut command = redis::cmd("HGET");
        command.arg(head).arg("n");
        match self.connection.send(&command).await? {
            Value::Nil => Ok(0),
            value => number_of(value),
        }
    }

    pub(crate) async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        let keys = self.keys.feed();
        loop {
            let call = FEED_READ.call(self.script_ms(), &keys);
            let name = format!("{:016x}", rand::random::<u64>());
            let call = call.arg(after).arg(limit.max(1)).arg(name);
            let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
            let (name, head, gap) = (reply.text()?, reply.number()?, reply.flag()?);
            // After a restart of an empty store the numbers may fit by chance; the name does not.
            if gap | self.is_another_feed(name) {
                return Ok(Changes { changes: vec![], next: head, gap: true });
            }
            let (mut list, mut changes) = (reply.list()?, vec![]);
            while !list.is_empty() {
                changes.push(read_change(&list.text()?)?);
            }
            if !changes.is_empty() {
                let next = after + changes.len() as u64;
                return Ok(Changes { changes, next, gap: false });
            }
            self.connection.wait_for(&keys[0], after).await?;
        }
    }

    fn is_another_feed(&self, name: String) -> bool {
        let before = self.feed_name.lock().replace(name.clone());
        before.is_some_and(|before| before != name)
    }
}

/// An instance's change as it is written in the feed.
pub(crate) fn instance_change(instance: &InstanceId) -> String {
    format!("instance {instance}")
}

fn read_change(text: &str) -> Result<Change> {
    let wrong = || corrupt(&format!("the change {text:?}"));
    let mut words = text.split(' ');
    let mut word = || words.next().ok_or_else(wrong);
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    Ok(match word()? {
        "node" => {
            let cell = CellId::new(number(word()?)? as usize).ok_or_else(wrong)?;
            let slot = Slot::new(number(word()?)? as usize).ok_or_else(wrong)?;
            let epoch = Epoch(number(word()?)?);
            let node = NodeId::new(word()?).map_err(|_| wrong())?;
            Change::Node { cell, slot, epoch, node }
        }
        "leader" => Change::Leader(Term(number(word()?)?)),
        "table" => Change::Table(number(word()?)?),
        "instance" => Change::Instance(InstanceId::new(word()?).map_err(|_| wrong())?),
        _ => return Err(wrong()),
    })
}
