//! Opens the store that the configuration names.
//!
//! Start at [`embedded`] and [`shared`]. The program also starts while a shared store does not
//! answer: until it does, `/readyz` fails and new jobs are refused.

use std::time::Duration;

use anyhow::Context;
use lingua_engine::TokioTimer;
use lingua_redis::{RedisOptions, RedisStore, StoreUrl};
use lingua_store::{Embedded, OpenError, StoreError, StoreLimits};

use crate::config::{BadConfig, Config};

/// The URL of the embedded store.
pub(crate) const EMBEDDED: &str = "embedded:";

/// How often a store that has data and no format is asked again.
const FORMAT_ATTEMPTS: u32 = 5;

/// The pause between two of these.
const FORMAT_PAUSE: Duration = Duration::from_secs(1);

/// The kind of store, for `/v1/cluster`.
pub(crate) fn kind_name(url: &str) -> &'static str {
    match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        "redis" | "rediss" => "redis",
        "redis+sentinel" | "rediss+sentinel" => "redis sentinel",
        "redis+cluster" | "rediss+cluster" => "redis cluster",
        _ => "embedded",
    }
}

/// The URL of a store as it may be shown. A URL that cannot be read may have a password anywhere.
pub(crate) fn without_password(url: &str) -> String {
    match url.parse::<StoreUrl>() {
        _ if url == EMBEDDED => url.to_owned(),
        Ok(url) => url.to_string(),
        Err(_) => "unreadable".to_owned(),
    }
}

pub(crate) fn embedded(config: &Config, timer: TokioTimer) -> anyhow::Result<Embedded<TokioTimer>> {
    let mut limits =
        StoreLimits { open_jobs_max: config.scheduler.open_jobs_max, ..StoreLimits::default() };
    limits.ended_jobs_max = config.store.ended_jobs_max.unwrap_or(limits.ended_jobs_max);
    limits.ended_bytes_max = config.store.ended_bytes_max.unwrap_or(limits.ended_bytes_max);
    let Some(dir) = &config.store.data_dir else {
        tracing::info!(
            "jobs are kept in memory only and are lost when this process ends (see --data-dir)"
        );
        return Ok(Embedded::new(config.rules()?, limits, timer));
    };
    let store =
        Embedded::open(config.rules()?, limits, timer, dir).map_err(|error| match error {
            OpenError::UnknownVersion { .. } => BadConfig(error.to_string()).into(),
            error => anyhow::Error::from(error),
        })?;
    tracing::info!(data_dir = %dir.display(), "jobs and epochs are stored on disk");
    Ok(store)
}

pub(crate) async fn shared(config: &Config) -> anyhow::Result<RedisStore> {
    let options = redis_options(config)?;
    let url = options.url.to_string();
    let store = RedisStore::open(options).map_err(|error| BadConfig(format!("store: {error}")))?;
    for attempt in 1.. {
        match store.ping().await {
            Ok(()) => tracing::info!(url, "connected to the shared store"),
            // A server that has just lost its data gets its format from the instances that run.
            Err(StoreError::OtherFormat { found: 0, .. }) if attempt < FORMAT_ATTEMPTS => {
                tokio::time::sleep(FORMAT_PAUSE).await;
                continue;
            }
            Err(error @ StoreError::OtherFormat { .. }) => {
                return Err(BadConfig(format!("store.url: {error}")).into());
            }
            Err(error) => tracing::warn!(url, %error, "the shared store does not answer yet"),
        }
        break;
    }
    Ok(store)
}

pub(crate) fn redis_options(config: &Config) -> anyhow::Result<RedisOptions> {
    let settings = &config.store;
    let url: StoreUrl =
        settings.url.parse().map_err(|error| BadConfig(format!("store.url: {error}")))?;
    if settings.data_dir.is_some() {
        let detail =
            "store.data_dir is for the embedded store; remove it or set store.url to embedded:";
        return Err(BadConfig(detail.to_owned()).into());
    }
    let mut options = RedisOptions::new(url, config.rules()?);
    options.key_prefix.clone_from(&settings.key_prefix);
    // Each instance bounds its open jobs itself.
    options.limits.ended_jobs_max =
        settings.ended_jobs_max.unwrap_or(options.limits.ended_jobs_max);
    options.limits.ended_bytes_max =
        settings.ended_bytes_max.unwrap_or(options.limits.ended_bytes_max);
    let at_least_1_ms = |ms: u64| Duration::from_millis(ms.max(1));
    options.timeouts.reply = at_least_1_ms(settings.timeout_ms);
    options.timeouts.connect = at_least_1_ms(settings.connect_timeout_ms);
    options.timeouts.reconnect_max = at_least_1_ms(settings.reconnect_max_ms);
    if let Some(file) = &settings.tls_ca_file {
        let pem = std::fs::read(file)
            .with_context(|| format!("cannot read store.tls_ca_file {}", file.display()))?;
        options.tls_ca = Some(pem);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        let mut config = Config::default();
        url.clone_into(&mut config.store.url);
        config
    }

    #[test]
    fn a_bad_store_url_is_a_configuration_error() {
        for (url, expected) in
            [("postgres://h", "begins with"), ("redis://h:x", "port"), ("redis://", "no host")]
        {
            let error = redis_options(&config(url)).unwrap_err();
            assert!(error.downcast_ref::<BadConfig>().is_some());
            assert!(error.to_string().contains(expected), "{error}");
        }
        let mut with_dir = config("redis://h");
        with_dir.store.data_dir = Some("x".into());
        assert!(redis_options(&with_dir).is_err());
    }

    #[test]
    fn every_url_has_a_kind() {
        let kinds =
            ["embedded:", "redis://h", "rediss://h", "redis+sentinel://h/m", "redis+cluster://h"];
        assert_eq!(
            kinds.map(kind_name),
            ["embedded", "redis", "redis", "redis sentinel", "redis cluster"]
        );
    }
}
