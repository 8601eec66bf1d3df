//! Which node each key is bound to.

use lingua_core::Tenant;

use super::Model;
use crate::contract::{BindReply, BindRequest, BindingRecord};

impl Model {
    /// What asking for a binding must answer.
    pub fn expect_binding(&mut self, tenant: Tenant, key: &str) -> Option<BindingRecord> {
        let now_ms = self.now_ms;
        self.bindings.retain(|(_, _, _, until_ms)| *until_ms >= now_ms);
        let mut own = self.bindings.iter().filter(|(t, k, ..)| (*t, &**k) == (tenant, key));
        own.next().map(|(_, _, binding, _)| binding.clone())
    }

    /// What binding a key must answer.
    pub fn expect_bind(&mut self, request: &BindRequest) -> BindReply {
        let BindRequest { tenant, key, replaces, to, keep_ms } = request;
        let present = self.expect_binding(*tenant, key);
        let node = present.as_ref().map(|binding| &binding.node);
        if node != replaces.as_ref() && node != Some(&to.node) {
            return BindReply::Conflict(present);
        }
        let now_ms = self.now_ms;
        let (mine, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.bindings)
            .into_iter()
            .partition(|(t, k, ..)| (t, k) == (tenant, key));
        self.bindings = others;
        let until_ms = match mine.first() {
            Some((_, _, bound, until_ms))
                if bound == to && *until_ms - now_ms >= keep_ms - keep_ms / 60 =>
            {
                *until_ms
            }
            _ => now_ms + keep_ms,
        };
        self.bindings.push((*tenant, key.clone(), to.clone(), until_ms));
        BindReply::Bound
    }
}
