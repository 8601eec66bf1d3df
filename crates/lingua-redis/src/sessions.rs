//! Records of sessions: a hash for each, with a tag of its own.

use lingua_store::Result;
use lingua_store::contract::{SaveSessionReply, SaveSessionRequest, SessionRecord};

use crate::reply::{ScriptReply, corrupt};
use crate::script::SESSION_SAVE;
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn write_session(
        &self,
        session: SaveSessionRequest,
    ) -> Result<SaveSessionReply> {
        session.check()?;
        let SaveSessionRequest { id, replaces, body, keep_ms } = session;
        let call = SESSION_SAVE.call(self.script_ms(), &[self.keys.session(&id)]);
        let call = call.arg(replaces).arg(&*body).arg(keep_ms);
        let mut reply = ScriptReply::new(self.connection.run(&call).await?)?;
        Ok(match reply.flag()? {
            true => SaveSessionReply::Saved,
            false => SaveSessionReply::Conflict { version: reply.number()? },
        })
    }

    pub(crate) async fn read_session(&self, id: &str) -> Result<Option<SessionRecord>> {
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.session(id)).arg("version").arg("body").arg("until");
        let mut reply = ScriptReply::new(self.connection.send(&command).await?)?;
        let Some(version) = reply.maybe_bytes()? else { return Ok(None) };
        let (body, until) = (reply.bytes()?, reply.text()?);
        let number = |text: &str| text.parse::<u64>().map_err(|_| corrupt("a session's record"));
        let version = number(&String::from_utf8_lossy(&version))?;
        if number(&until)? < self.clock_ms().await? {
            return Ok(None);
        }
        Ok(Some(SessionRecord { version, body: body.into() }))
    }
}
