//! The scripts: one for each operation, behind its shared parts of `scripts/prelude/` and with its
//! constants written in.
//!
//! Start at [`Script::command`]. A script is called by its hash. A server that does not know it
//! gets the whole text once (see [`Script::command_in_full`]).

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

use crate::constants;

/// Arguments and bytes of most calls: a command of this size is not reallocated.
const ARGS: usize = 32;
const BYTES: usize = 1024;

/// A script and its hash.
pub(crate) struct Script {
    text: String,
    hash: String,
}

macro_rules! scripts {
    ($($NAME:ident $file:literal $(+ $part:literal)*,)*) => {
        $(
            pub(crate) static $NAME: LazyLock<Script> = LazyLock::new(|| Script::new(&[
                include_str!("../scripts/prelude/base.lua"),
                $(include_str!(concat!("../scripts/prelude/", $part, ".lua")),)*
                include_str!(concat!("../scripts/", $file, ".lua")),
            ]));
        )*

        /// Every script by name, with its shared parts.
        #[cfg(test)]
        pub(crate) fn texts() -> Vec<(&'static str, Vec<&'static str>)> {
            vec![$(($file, vec![
                include_str!(concat!("../scripts/", $file, ".lua")),
                $(include_str!(concat!("../scripts/prelude/", $part, ".lua")),)*
            ]),)*]
        }
    };
}

scripts! {
    ASSIGN "assign" + "clock" + "classes",
    RELEASE "release" + "classes",
    REGISTER "register" + "clock" + "leases" + "cells" + "nodes",
    HEARTBEAT "heartbeat" + "clock" + "leases" + "cells" + "nodes",
    SET_STATE "set_state" + "clock" + "leases" + "cells" + "nodes",
    RESERVE "reserve" + "clock" + "leases" + "cells" + "choice",
    COMMIT "commit" + "clock" + "leases",
    FINISH "finish" + "leases",
    REAP "reap" + "clock" + "leases" + "cells",
    VIEW "view" + "clock",
    JOB_CREATE "job_create" + "clock" + "jobs",
    JOB_ADVANCE "job_advance" + "clock" + "jobs",
    JOB_CLAIM "job_claim" + "clock" + "jobs",
    JOB_ERASE "job_erase" + "clock" + "jobs",
    JOB_ORPHANS "job_orphans",
    JOB_UNLIST "job_unlist",
    USAGE_ADD "usage_add" + "clock",
    USAGE_LIST "usage_list" + "clock",
    KEY_CLAIM "key_claim" + "clock",
    FORMAT "format",
    ELECT "elect" + "clock" + "feed",
    RESIGN "resign" + "clock",
    PUBLISH "publish" + "clock" + "feed",
    FEED_ADD "feed_add" + "feed",
    FEED_READ "feed_read" + "clock",
    ANNOUNCE "announce" + "clock",
    WITHDRAW "withdraw",
    SESSION_SAVE "session_save" + "clock",
    BIND "bind" + "clock",
    SEND "send" + "clock",
    RECEIVE "receive",
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = constants::inline(&parts.join("\n"));
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The call by hash. The time is always the first argument.
    pub(crate) fn command(
        &self,
        now_ms: u64,
        keys: &[impl AsRef<[u8]>],
        args: impl ToRedisArgs,
    ) -> Cmd {
        let mut command = Cmd::with_capacity(ARGS, BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command.arg(now_ms).arg(args);
        command
    }

    /// The same call with the whole text of the script, which the server then remembers.
    pub(crate) fn command_in_full(&self, by_hash: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.text);
        for arg in by_hash.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests;
