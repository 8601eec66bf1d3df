//! Bindings of keys to nodes: a text for each, which expires.

use lingua_core::{CellId, Epoch, NodeId, Slot, Tenant};
use lingua_store::contract::{BindReply, BindRequest, BindingRecord, Place};
use lingua_store::{Clock, Result};
use redis::Value;

use crate::reply::{convert, corrupt};
use crate::script::BIND;
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn bind(&self, request: BindRequest) -> Result<BindReply> {
        request.check()?;
        let BindRequest { tenant, key, replaces, to, keep_ms } = request;
        let Place { cell, slot, epoch } = to.place;
        let place = format!("{} {} {epoch}", cell.index(), slot.index());
        let replaces = replaces.as_ref().map_or("", NodeId::as_str);
        let args = (replaces, to.node.as_str(), place, keep_ms);
        let key = self.keys.binding(tenant, &key);
        match self.call(&BIND, &[key], args).await? {
            Value::Int(_) => Ok(BindReply::Bound),
            present => Ok(BindReply::Conflict(self.read(convert(present)?)?)),
        }
    }

    pub(crate) async fn binding(&self, tenant: Tenant, key: &str) -> Result<Option<BindingRecord>> {
        let mut command = redis::cmd("GET");
        command.arg(self.keys.binding(tenant, key));
        let text: Option<String> = self.query(&command).await?;
        self.read(text.unwrap_or_default())
    }

    /// Reads a binding; one of another version is as good as none. The server removes what has
    /// expired; only a test's clock has to be asked.
    fn read(&self, text: String) -> Result<Option<BindingRecord>> {
        let mut words = text.split(' ');
        if words.next() != Some("1") {
            return Ok(None);
        }
        let mut read = || {
            let until_ms: u64 = words.next()?.parse().ok()?;
            let node = NodeId::new(words.next()?).ok()?;
            let cell = CellId::new(words.next()?.parse().ok()?)?;
            let slot = Slot::new(words.next()?.parse().ok()?)?;
            let epoch = Epoch(words.next()?.parse().ok()?);
            Some((until_ms, BindingRecord { node, place: Place { cell, slot, epoch } }))
        };
        let (until_ms, binding) =
            read().ok_or_else(|| corrupt(&format!("{text:?} where a binding belongs")))?;
        let is_over = self.options.clock.as_ref().is_some_and(|clock| until_ms < clock.now_ms());
        Ok((!is_over).then_some(binding))
    }
}
