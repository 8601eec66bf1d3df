//! `config dump` and `config docs`: all keys, with the values in force or with their meaning.

use std::fmt::Write;

use super::keys::{ConfigKey, KEYS};
use super::{BadConfig, Config};
use crate::store;

/// All settings as TOML. Keys that are not set are comments, and the store's password is left out.
pub(crate) fn dump(config: &Config) -> Result<String, BadConfig> {
    let mut table = table_of(config)?;
    if let Some(url) = table.get_mut("store").and_then(|store| store.get_mut("url")) {
        *url = store::without_password(&config.store.url).into();
    }
    let mut out = String::new();
    for (section, keys) in sections() {
        let separator = if out.is_empty() { "" } else { "\n" };
        writeln!(out, "{separator}[{section}]").ok();
        for key in &keys {
            match key.value(&table) {
                Some(value) if is_tables(value) => {}
                Some(value) => writeln!(out, "{} = {value}", key.name()).unwrap_or_default(),
                None => writeln!(out, "# {} is not set", key.name()).unwrap_or_default(),
            }
        }
        for key in &keys {
            let tables = key.value(&table).filter(|value| is_tables(value));
            for entry in tables.and_then(toml::Value::as_array).into_iter().flatten() {
                write!(out, "\n[[{}]]\n{}", key.path, toml::to_string(entry).unwrap_or_default())
                    .ok();
            }
        }
    }
    Ok(out)
}

/// The settings as TOML values.
pub(crate) fn table_of(config: &Config) -> Result<toml::Table, BadConfig> {
    toml::Table::try_from(config).map_err(|error| BadConfig(format!("a value is too big: {error}")))
}

fn is_tables(value: &toml::Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().any(toml::Value::is_table))
}

/// The keys of each section, in the order of the table.
fn sections() -> Vec<(&'static str, Vec<&'static ConfigKey>)> {
    let mut sections: Vec<(&str, Vec<&ConfigKey>)> = vec![];
    for key in KEYS {
        match sections.last_mut().filter(|(section, _)| *section == key.section()) {
            Some((_, keys)) => keys.push(key),
            None => sections.push((key.section(), vec![key])),
        }
    }
    sections
}

const INTRODUCTION: &str = "\
# Configuration

`lingua config docs` wrote this page; `cargo xtask docs` writes it again.

Settings come from the defaults, then from the file of `--config` (TOML), then from the
environment, then from flags; later ones win. `LINGUA_SERVER__LISTEN` sets `server.listen`: two
underscores separate section and key. Unknown keys and values out of range are errors (exit code
64). `lingua config check --config FILE` checks a file, `lingua config dump --config FILE` prints
all settings that are in force, without passwords.

Names that end in `_ms` are times in milliseconds.
";

/// The reference of all keys, as Markdown.
pub(crate) fn docs() -> Result<String, BadConfig> {
    let defaults = table_of(&Config::default())?;
    let mut out = INTRODUCTION.to_owned();
    for (section, keys) in sections() {
        write!(
            out,
            "\n## [{section}]\n\n| key | default | values | meaning |\n|---|---|---|---|\n"
        )
        .ok();
        for key in keys {
            let default =
                key.value(&defaults).map_or("not set".to_owned(), |value| format!("`{value}`"));
            let (name, accepts, meaning) = (key.name(), key.accepts, key.meaning);
            writeln!(out, "| `{name}` | {default} | {accepts} | {meaning} |").ok();
        }
    }
    Ok(out)
}
