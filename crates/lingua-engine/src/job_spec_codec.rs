//! The bytes of a job's spec, for the store and for other instances.
//!
//! Start at [`encode`] and [`decode`]. The first byte is the version, the rest is JSON with the
//! fields of [`SpecRecord`]. Inline audio is never written: it lives in memory only.
//!
//! Invariant: `decode(encode(spec))` gives the same spec, with [`Payload::Absent`] in place of
//! inline audio; bytes of another version are refused.

use std::borrow::Cow;
use std::str::FromStr;

use lingua_core::job::{JobSpec, Payload};
use lingua_core::{Needs, NodeLabel, RequiredLabels, Service, Tenant};
use serde::{Deserialize, Serialize};

use crate::versioned::{self, RecordError, malformed};

#[cfg(test)]
mod tests;

/// Raised with every change of [`SpecRecord`].
pub(crate) const VERSION: u8 = 2;

/// A spec as this version writes it. Fields with their default value are left out.
#[serde_with::apply(_ => #[serde(skip_serializing_if = "is_default")])]
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SpecRecord<'a> {
    session: Cow<'a, str>,
    trace: Cow<'a, str>,
    pair: Cow<'a, str>,
    two_way: bool,
    asr: bool,
    tts: bool,
    services: Vec<Cow<'a, str>>,
    labels: Vec<Cow<'a, str>>,
    audio_ref: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    context: Vec<Cow<'a, str>>,
    preferred: Option<Cow<'a, str>>,
    strict: bool,
    exclude: Vec<Cow<'a, str>>,
    bind_key: Option<Cow<'a, str>>,
    wait_ms: Option<u64>,
    deadline_ms: Option<u64>,
    priority: i32,
    public: bool,
    /// Empty: the default one.
    tenant: Cow<'a, str>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn encode(spec: &JobSpec) -> Vec<u8> {
    let text = |text| Cow::Borrowed(text);
    let (audio_ref, said) = match &spec.payload {
        Payload::AudioRef(at) => (Some(text(&**at)), None),
        Payload::Text(said) => (None, Some(text(&**said))),
        Payload::Audio { .. } | Payload::Absent => (None, None),
    };
    let record = SpecRecord {
        session: text(&spec.session),
        trace: text(&spec.trace),
        pair: Cow::Owned(spec.pair.to_string()),
        two_way: spec.two_way,
        asr: spec.needs.asr,
        tts: spec.needs.tts,
        services: spec.needs.extra.iter().map(|service| text(service.as_str())).collect(),
        labels: spec.needs.labels.iter().map(|label| Cow::Owned(label.to_string())).collect(),
        audio_ref,
        text: said,
        context: spec.context.iter().map(|said| text(said)).collect(),
        preferred: spec.preferred.as_ref().map(|node| text(node.as_str())),
        strict: spec.strict,
        exclude: spec.exclude.iter().map(|node| text(node.as_str())).collect(),
        bind_key: spec.bind_key.as_deref().map(text),
        wait_ms: spec.wait_ms,
        deadline_ms: spec.deadline_ms,
        priority: spec.priority,
        public: spec.public,
        tenant: match spec.tenant == Tenant::default() {
            true => Cow::default(),
            false => text(spec.tenant.as_str()),
        },
    };
    versioned::encode(VERSION, &record)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<JobSpec, RecordError> {
    let record: SpecRecord<'_> = versioned::decode(VERSION, bytes)?;
    let extra = record.services.iter().map(|name| parse::<Service>(name));
    let extra = extra.collect::<Result<_, _>>()?;
    let labels = record.labels.iter().map(|name| parse::<NodeLabel>(name));
    let labels = RequiredLabels::new(labels.collect::<Result<Vec<_>, _>>()?).map_err(malformed)?;
    let payload = match (record.audio_ref, record.text) {
        (Some(at), None) => Payload::AudioRef(at.into()),
        (None, Some(said)) => Payload::Text(said.into()),
        (None, None) => Payload::Absent,
        (Some(_), Some(_)) => return Err(malformed("it has two payloads")),
    };
    Ok(JobSpec {
        session: record.session.into(),
        trace: record.trace.into(),
        pair: parse(&record.pair)?,
        two_way: record.two_way,
        needs: Needs { asr: record.asr, tts: record.tts, extra, labels },
        payload,
        context: record.context.into_iter().map(Into::into).collect(),
        preferred: record.preferred.map(|node| parse(&node)).transpose()?,
        strict: record.strict,
        exclude: record.exclude.iter().map(|node| parse(node)).collect::<Result<_, _>>()?,
        bind_key: record.bind_key.map(Into::into),
        wait_ms: record.wait_ms,
        deadline_ms: record.deadline_ms,
        priority: record.priority,
        public: record.public,
        tenant: match &*record.tenant {
            "" => Tenant::default(),
            name => parse(name)?,
        },
    })
}

fn parse<T: FromStr<Err: ToString>>(text: &str) -> Result<T, RecordError> {
    text.parse().map_err(malformed)
}
