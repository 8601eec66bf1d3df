//! Leader, pool table and change feed. They are neighbours, so that a change of the first two is
//! told in the same step in which it is made.

use lingua_core::{CellId, Epoch, InstanceId, NodeId, Slot, Term};
use lingua_store::contract::{
    Change, Changes, ElectReply, ElectRequest, PublishReply, PublishRequest, PublishedTable,
    TABLE_BYTES_MAX,
};
use lingua_store::{Result, StoreError};

use crate::format::FORMAT;
use crate::reply::{ScriptReply, corrupt, parse};
use crate::script::{ELECT, FEED_ADD, FEED_READ, PUBLISH, RESIGN};
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn elect(&self, request: ElectRequest) -> Result<ElectReply> {
        let [feed, head] = self.keys.feed();
        let ElectRequest { instance, incarnation, lease_ms } = request;
        let feed_max = self.options.limits.feed_max;
        let args = (instance.as_str(), incarnation.0, lease_ms, feed_max, FORMAT);
        let keys = [self.keys.cluster("leader"), feed, head, self.keys.cluster("format")];
        let (leading, leader, term, until_ms): (bool, String, u64, u64) =
            self.call(&ELECT, &keys, args).await?;
        let term = Term(term);
        Ok(match leading {
            true => ElectReply::Leading { term, until_ms },
            false => ElectReply::Following { leader: parse(&leader)?, term, until_ms },
        })
    }

    pub(crate) async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        self.call(&RESIGN, &[self.keys.cluster("leader")], (instance.as_str(), term.0)).await
    }

    pub(crate) async fn publish(&self, publish: PublishRequest) -> Result<PublishReply> {
        let PublishRequest { instance, term, replaces, table } = publish;
        StoreError::check_limit("the pool table in bytes", table.len(), TABLE_BYTES_MAX)?;
        let [feed, head] = self.keys.feed();
        let keys = [self.keys.cluster("leader"), self.keys.cluster("table"), feed, head];
        let feed_max = self.options.limits.feed_max;
        let args = (instance.as_str(), term.0, replaces, &table[..], feed_max);
        let mut reply: ScriptReply = self.call(&PUBLISH, &keys, args).await?;
        Ok(match reply.next::<String>()?.as_str() {
            "published" => PublishReply::Published(reply.next()?),
            "conflict" => PublishReply::Conflict(reply.next()?),
            _ => PublishReply::NotLeader,
        })
    }

    pub(crate) async fn table(&self) -> Result<Option<PublishedTable>> {
        let mut command = redis::cmd("HMGET");
        command.arg((self.keys.cluster("table"), "version", "term", "published", "table"));
        let fields: (Option<u64>, Option<u64>, Option<u64>, Option<Vec<u8>>) =
            self.query(&command).await?;
        let (Some(version), Some(term), Some(published_ms), Some(table)) = fields else {
            return Ok(None);
        };
        Ok(Some(PublishedTable { version, term: Term(term), published_ms, table: table.into() }))
    }

    /// Publishes a node's change on the feed, and removes it from the cell's list. If that fails
    /// the change stays there, and the next clean-up publishes it: no reply waits for it.
    pub(crate) async fn publish_node_change(&self, cell: CellId, change: Vec<u8>) {
        if change.is_empty() {
            return;
        }
        let published = async {
            self.publish_change(&change).await?;
            let unpublished = &self.keys.cell(cell).unpublished;
            self.query::<()>(redis::cmd("LREM").arg((unpublished, 1, &change))).await
        };
        if let Err(error) = published.await {
            tracing::warn!(%error, %cell, "the change of a node will be published later");
        }
    }

    pub(crate) async fn publish_change(&self, change: &[u8]) -> Result<()> {
        let args = (self.options.limits.feed_max, change);
        self.call(&FEED_ADD, &self.keys.feed(), args).await
    }

    pub(crate) async fn feed_head(&self) -> Result<u64> {
        let [_, head] = self.keys.feed();
        let number: Option<u64> = self.query(redis::cmd("HGET").arg((head, "n"))).await?;
        Ok(number.unwrap_or(0))
    }

    pub(crate) async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        let keys = self.keys.feed();
        loop {
            let name = format!("{:016x}", rand::random::<u64>());
            let (name, head, gap, texts): (String, u64, bool, Vec<String>) =
                self.call(&FEED_READ, &keys, (after, limit.max(1), name)).await?;
            // After a restart of an empty store the numbers may fit by chance; the name does not.
            if gap | self.is_another_feed(name) {
                return Ok(Changes { changes: vec![], next: head, gap: true });
            }
            if !texts.is_empty() {
                let next = after + texts.len() as u64;
                let changes: Result<_> = texts.iter().map(|text| read_change(text)).collect();
                return Ok(Changes { changes: changes?, next, gap: false });
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

pub(crate) fn read_change(text: &str) -> Result<Change> {
    let mut words = text.split(' ');
    let mut read = || {
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(match kind {
            "node" => {
                let cell = CellId::new(number()? as usize)?;
                let slot = Slot::new(number()? as usize)?;
                let epoch = Epoch(number()?);
                Change::Node { cell, slot, epoch, node: NodeId::new(words.next()?).ok()? }
            }
            "leader" => Change::Leader(Term(number()?)),
            "table" => Change::Table(number()?),
            "instance" => Change::Instance(InstanceId::new(words.next()?).ok()?),
            _ => return None,
        })
    };
    read().ok_or_else(|| corrupt(&format!("the change {text:?}")))
}
