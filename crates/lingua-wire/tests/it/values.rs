//! Values that several tests use.

use std::borrow::Cow;

use lingua_core::{Attempt, JobId, Lang, NodeId};
use lingua_wire::RawJson;
use lingua_wire::node::{CapabilityFields, JobRef, LanguageLists, ServiceFlags};

pub(crate) const JOB: JobId = JobId::new(0x0192_1f3e_0000_7000_8000_0000_0000_0001);

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

pub(crate) fn lang(tag: &str) -> Lang {
    Lang::new(tag).expect("a language")
}

pub(crate) fn job_ref(attempt: u32) -> JobRef {
    JobRef { job_id: JOB, attempt_id: Attempt(attempt) }
}

pub(crate) fn raw(json: &str) -> RawJson {
    RawJson::new(json.to_owned()).expect("JSON")
}

pub(crate) fn some(text: &str) -> Option<Cow<'_, str>> {
    Some(Cow::Borrowed(text))
}

pub(crate) fn tags(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|tag| (*tag).to_owned()).collect())
}

pub(crate) fn pairs(list: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    Some(list.iter().map(|(src, tgt)| ((*src).to_owned(), (*tgt).to_owned())).collect())
}

/// A nested registration that names everything.
pub(crate) fn contract_capability() -> CapabilityFields {
    CapabilityFields {
        language_capabilities: Some(LanguageLists {
            asr_languages: tags(&["zh", "en"]),
            semantic_languages: tags(&["zh", "en"]),
            tts_languages: tags(&["zh", "en"]),
            nmt_pairs: pairs(&[("zh", "en"), ("en", "zh")]),
        }),
        services: Some(ServiceFlags {
            asr: Some(true),
            nmt: Some(true),
            tts: Some(true),
            tone: Some(false),
            semantic: Some(true),
        }),
        max_concurrent_jobs: Some(4),
        accept_public_jobs: Some(true),
        ..CapabilityFields::default()
    }
}

/// A flat registration of one language.
pub(crate) fn flat_capability() -> CapabilityFields {
    CapabilityFields {
        semantic_langs: tags(&["en", "zh"]),
        tts_langs: tags(&["en", "zh"]),
        ..CapabilityFields::default()
    }
}
