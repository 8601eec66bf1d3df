//! `lingua grant`: grants for the users of an app.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use lingua_server::auth::{
    GRANT_SECONDS_MAX, GrantAbilities, GrantClaims, GrantRooms, sign_grant, wall_ms,
};

use crate::config::{BadConfig, Config};

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Sign a grant, which lets a user open sessions for a while; it goes to stdout.
    New(NewGrant),
}

#[derive(Debug, Args)]
pub(crate) struct NewGrant {
    /// The id of the key, as in [[auth.keys]].
    #[arg(long)]
    key_id: String,
    /// How long it is valid: 90s, 10m, 24h.
    #[arg(long, value_parser = seconds)]
    ttl: u64,
    /// The user; sessions are counted for each.
    #[arg(long, default_value = "user")]
    sub: String,
    /// Sessions at a time [default: 1].
    #[arg(long)]
    sessions: Option<usize>,
    /// Pairs of languages, as in zh:en,en:zh [default: all].
    #[arg(long, value_delimiter = ',')]
    langs: Option<Vec<String>>,
    /// Ids of rooms, or '*'.
    #[arg(long, value_delimiter = ',')]
    rooms: Option<Vec<String>>,
    /// The secret, or an Ed25519 private key (PEM) [default: the key's secret_file].
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Configuration that has the key (TOML).
    #[arg(long)]
    config: Option<PathBuf>,
}

/// Reads a time such as `10m`.
fn seconds(text: &str) -> Result<u64, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let read = units.iter().find_map(|(unit, seconds)| {
        text.strip_suffix(*unit)?.parse::<u64>().ok()?.checked_mul(*seconds)
    });
    match read {
        Some(seconds @ 1..=GRANT_SECONDS_MAX) => Ok(seconds),
        Some(_) => Err("a grant is valid for 1s to 24h".to_owned()),
        None => Err("write it as in 90s, 10m or 24h".to_owned()),
    }
}

pub(crate) fn run(GrantCommand::New(grant): GrantCommand) -> anyhow::Result<()> {
    let path = match &grant.key_file {
        Some(path) => path.clone(),
        None => secret_file(&grant.key_id, grant.config.as_deref())?,
    };
    let file = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rooms = grant.rooms.map(|mut ids| match ids.as_slice() {
        [_] => GrantRooms::One(ids.remove(0)),
        _ => GrantRooms::Ids(ids),
    });
    let claims = GrantClaims {
        iss: grant.key_id,
        sub: grant.sub,
        exp: wall_ms() / 1_000 + grant.ttl,
        tenant: None,
        lingua: GrantAbilities { sessions: grant.sessions, rooms, langs: grant.langs },
    };
    let signed = sign_grant(&claims, &file).map_err(|error| anyhow!("{}: {error}", path.display()));
    println!("{}", signed?);
    Ok(())
}

/// The secret file of a key in the configuration.
fn secret_file(key_id: &str, config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let config = Config::load(config)?;
    let Some(key) = config.auth.key(key_id)? else {
        return Err(BadConfig(format!(
            "there is no key {key_id:?} in [[auth.keys]]; give its configuration with --config, \
             or its secret with --key-file"
        ))
        .into());
    };
    match key.secret_file {
        Some(path) => Ok(path),
        None => bail!("the server knows only the public key; give the private one with --key-file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_is_at_most_a_day() {
        assert_eq!((seconds("90s"), seconds("10m"), seconds("24h")), (Ok(90), Ok(600), Ok(86_400)));
        for bad in ["", "10", "0s", "25h", "10d", "-1m", "99999999999999999999h"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
