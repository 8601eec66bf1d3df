//! The scripts: one for each operation, with the shared parts (`scripts/prelude/`) put in front.
//!
//! Start at [`Script::call`]. A script is called by its hash; a server that does not know it is sent
//! the whole text once (see [`Call::in_full`]).

use std::sync::LazyLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// Arguments that most calls have at most, and their bytes: no need to move while one is put together.
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

        /// Every script by name, for the tests.
        #[cfg(test)]
        pub(crate) fn all() -> Vec<(&'static str, &'static str)> {
            vec![$(($file, include_str!(concat!("../scripts/", $file, ".lua"))),)*]
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
    JOB_ORPHANS "job_orphans",
    ELECT "elect" + "clock" + "feed",
    RESIGN "resign" + "clock",
    PUBLISH "publish" + "clock" + "feed",
    FEED_ADD "feed_add" + "feed",
    FEED_READ "feed_read" + "clock",
    ANNOUNCE "announce" + "clock",
    WITHDRAW "withdraw",
    SESSION_SAVE "session_save" + "clock",
    SEND "send" + "clock",
    RECEIVE "receive",
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Begins a call with its keys; the time is always the first argument.
    pub(crate) fn call<K: AsRef<[u8]>>(&'static self, now_ms: u64, keys: &[K]) -> Call {
        let mut command = Cmd::with_capacity(ARGS, BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command.arg(now_ms);
        Call { script: self, command }
    }
}

/// A call of a script that is being put together.
pub(crate) struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn push(&mut self, arg: impl ToRedisArgs) {
        self.command.arg(arg);
    }

    /// The call by hash.
    pub(crate) fn command(&self) -> &Cmd {
        &self.command
    }

    /// The same call with the whole script in it, which the server remembers.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script.text);
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_says_its_keys_arguments_reply_and_why_it_is_atomic() {
        for (name, text) in all() {
            for part in ["-- KEYS ", "-- ARGV ", "-- RETURNS ", "-- WHY ATOMIC "] {
                assert!(text.contains(part), "{name}.lua does not say {part:?}");
            }
        }
    }

    #[test]
    fn no_script_makes_up_a_key() {
        for (name, text) in all() {
            for connection in
                text.lines().filter(|connection| !connection.trim_start().starts_with("--"))
            {
                assert!(
                    !connection.contains("KEYS[1] .."),
                    "{name}.lua makes up a key: {connection}"
                );
            }
        }
    }

    #[test]
    fn the_call_in_full_has_the_same_keys_and_arguments() {
        let call = RESIGN.call(7, &["{hub}:leader"]).arg("me").arg(5u64);
        let text = |command: &Cmd| {
            let args = command.args_iter().map(|arg| match arg {
                Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            });
            args.collect::<Vec<_>>()
        };
        let (by_hash, in_full) = (text(call.command()), text(&call.in_full()));
        assert_eq!(by_hash[0], "EVALSHA");
        assert_eq!(in_full[0], "EVAL");
        assert_eq!(by_hash[2..], in_full[2..]);
        assert_eq!(by_hash[2..], ["1", "{hub}:leader", "7", "me", "5"]);
    }
}
