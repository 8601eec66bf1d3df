//! Session records: a hash for each, with a hash tag of its own.

use lingua_store::Result;
use lingua_store::contract::{SaveSessionReply, SaveSessionRequest, SessionRecord};

use crate::reply::ScriptReply;
use crate::script::SESSION_SAVE;
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn save_session(
        &self,
        request: SaveSessionRequest,
    ) -> Result<SaveSessionReply> {
        request.check()?;
        let SaveSessionRequest { id, replaces, body, keep_ms } = request;
        let (key, args) = (self.keys.session(&id), (replaces, &*body, keep_ms));
        let mut reply: ScriptReply = self.call(&SESSION_SAVE, &[key], args).await?;
        Ok(match reply.next()? {
            true => SaveSessionReply::Saved,
            false => SaveSessionReply::Conflict { version: reply.next()? },
        })
    }

    pub(crate) async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg((self.keys.session(id), "version", "body", "until"));
        let fields: (Option<u64>, Vec<u8>, Option<u64>) = self.query(&command).await?;
        let (Some(version), body, Some(until_ms)) = fields else { return Ok(None) };
        let is_kept = until_ms >= self.now_ms().await?;
        Ok(is_kept.then(|| SessionRecord { version, body: body.into() }))
    }
}
