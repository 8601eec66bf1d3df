//! Session records: a hash for each, with a hash tag of its own.

use lingua_store::Result;
use lingua_store::contract::{SaveSessionReply, SaveSessionRequest, SessionRecord};

use crate::reply::{ScriptReply, corrupt};
use crate::script::SESSION_SAVE;
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn save_session(
        &self,
        request: SaveSessionRequest,
    ) -> Result<SaveSessionReply> {
        request.check()?;
        let SaveSessionRequest { id, replaces, body, keep_ms } = request;
        let call = SESSION_SAVE.call(self.script_ms(), &[self.keys.session(&id)]);
        let call = call.arg(replaces).arg(&*body).arg(keep_ms);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        Ok(match reply.flag()? {
            true => SaveSessionReply::Saved,
            false => SaveSessionReply::Conflict { version: reply.number()? },
        })
    }

    pub(crate) async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.session(id)).arg("version").arg("body").arg("until");
        let mut reply = ScriptReply::new(self.connection.send(&command).await?)?;
        let Some(version) = reply.maybe_bytes()? else { return Ok(None) };
        let (body, until) = (reply.bytes()?, reply.text()?);
        let number = |text: &str| text.parse::<u64>().map_err(|_| corrupt("a session's record"));
        let version = number(&String::from_utf8_lossy(&version))?;
        if number(&until)? < self.now_ms().await? {
            return Ok(None);
        }
        Ok(Some(SessionRecord { version, body: body.into() }))
    }
}
