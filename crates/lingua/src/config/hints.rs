//! Unknown keys: what to write instead.
//!
//! Start at [`unknown_keys`]. It knows the names that other documents about such schedulers use,
//! and finds keys that are in the wrong section.

use config::{Value, ValueKind};

use super::keys::{ConfigKey, KEYS};

/// Keys of other configurations, and what to do instead.
const HINTS: [(&str, &str); 11] = [
    (
        "scheduler.phase2.enabled",
        "remove it; instances share a fleet as soon as store.url names a Redis",
    ),
    ("scheduler.phase2.instance_id", "use instance.id"),
    ("scheduler.phase2.redis_url", "use store.url"),
    (
        "scheduler.phase2.key_prefix",
        "use store.key_prefix; its default is \"lingua:v1:\", with the colon",
    ),
    ("scheduler.phase3.enabled", "remove it; pools follow from the nodes"),
    ("scheduler.phase3.mode", "use selection.policy; the nearest to \"two_level\" is \"balanced\""),
    ("scheduler.phase3.auto_generate_language_pools", "use pools.generate"),
    ("scheduler.phase3.auto_pool_config.min_nodes_per_pool", "use pools.min_nodes_per_pool"),
    ("scheduler.phase3.auto_pool_config.max_pools", "use pools.max_pools"),
    (
        "scheduler.phase3.auto_pool_config.require_semantic",
        "use pools.semantic_rule = \"source\" for true, \"declared\" for false",
    ),
    ("scheduler.phase3.auto_pool_config.enable_mixed_pools", "use pools.mixed"),
];

/// A line for each key that is not a setting, in alphabetical order.
pub(crate) fn unknown_keys(root: &Value) -> Vec<String> {
    let mut found = vec![];
    collect("", root, &mut found);
    found.sort_unstable();
    found
}

fn collect(path: &str, value: &Value, found: &mut Vec<String>) {
    if ConfigKey::find(path).is_some() {
        return;
    }
    let is_section = path.is_empty() || KEYS.iter().any(|key| key.section() == path);
    match &value.kind {
        ValueKind::Table(table) if is_section || !table.is_empty() => {
            for (name, value) in table {
                let separator = if path.is_empty() { "" } else { "." };
                collect(&format!("{path}{separator}{name}"), value, found);
            }
        }
        _ => found.push(line(path, value.origin())),
    }
}

fn line(path: &str, origin: Option<&str>) -> String {
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    let advice = match HINTS.iter().find(|(known, _)| *known == path) {
        Some((_, advice)) => Some((*advice).to_owned()),
        None => KEYS.iter().find(|key| key.name() == name).map(|key| format!("use {}", key.path)),
    };
    let origin = origin.map(|origin| format!(" (in {origin})")).unwrap_or_default();
    match advice {
        Some(advice) => format!("{path}{origin}: {advice}"),
        None => format!("{path}{origin}: there is no such key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_names_a_key() {
        for (_, advice) in HINTS {
            let named = advice.split_whitespace().find(|word| word.contains('.'));
            let Some(named) = named else { continue };
            assert!(ConfigKey::find(named.trim_end_matches([';', ','])).is_some(), "{advice}");
        }
    }
}
