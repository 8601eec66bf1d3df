//! The codec keeps all but inline audio, and refuses what it does not know.

use std::sync::Arc;

use lingua_core::NodeId;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

fn text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Arc::from)
}

fn node() -> impl Strategy<Value = NodeId> {
    "[a-z0-9._:@-]{1,20}".prop_filter_map("a name", |name| NodeId::new(&name).ok())
}

fn payload() -> impl Strategy<Value = Payload> {
    let audio = |data: Vec<u8>| {
        let (format, data) = (Arc::from("pcm16"), data.into());
        Payload::Audio { format, sample_rate: Some(16_000), data }
    };
    prop_oneof![
        text().prop_map(Payload::AudioRef),
        text().prop_map(Payload::Text),
        vec(any::<u8>(), 0..64).prop_map(audio),
        Just(Payload::Absent),
    ]
}

prop_compose! {
    fn spec()(
        (session, trace, bind_key) in (text(), text(), option::of(text())),
        pair in select(vec!["zh:en", "*:de", "en:zh-CN"]),
        payload in payload(),
        (asr, tts, two_way, strict, public) in any::<(bool, bool, bool, bool, bool)>(),
        extra in subsequence(Service::ALL.to_vec(), 0..=Service::ALL.len()),
        labels in subsequence(vec!["eu", "gpu", "region:eu"], 0..=3),
        context in vec(text(), 0..3),
        (preferred, exclude) in (option::of(node()), vec(node(), 0..3)),
        (wait_ms, deadline_ms) in any::<(Option<u64>, Option<u64>)>(),
        (priority, tenant) in (any::<i32>(), select(vec!["default", "alice"])),
    ) -> JobSpec {
        let labels = RequiredLabels::new(labels.iter().map(|label| label.parse().unwrap()));
        let (extra, labels) = (extra.into_iter().collect(), labels.unwrap());
        let needs = Needs { asr, tts, extra, labels };
        JobSpec {
            session, trace, two_way, needs, context, preferred, strict, exclude, bind_key,
            wait_ms, deadline_ms, priority, public,
            tenant: tenant.parse().unwrap(),
            ..JobSpec::new(pair.parse().unwrap(), payload)
        }
    }
}

proptest! {
    #[test]
    fn a_spec_survives_all_but_its_inline_audio(spec in spec()) {
        let bytes = encode(&spec);
        let payload = match &spec.payload {
            Payload::Audio { .. } => Payload::Absent,
            kept => kept.clone(),
        };
        prop_assert_eq!(decode(&bytes), Ok(JobSpec { payload, ..spec }));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(mut bytes in vec(any::<u8>(), 0..200)) {
        decode(&bytes).ok();
        if let Some(version) = bytes.first_mut() {
            *version = VERSION;
        }
        decode(&bytes).ok();
    }
}

#[test]
fn another_version_and_unknown_fields_are_refused() {
    let mut bytes = encode(&JobSpec::new("zh:en".parse().unwrap(), Payload::Absent));
    bytes[0] = VERSION + 1;
    assert_eq!(
        decode(&bytes),
        Err(RecordError::OtherVersion { found: VERSION + 1, known: VERSION })
    );
    for json in [r#"{"pair":"zh:en","audio":"AAAA"}"#, r#"{"pair":"zh"}"#, "{}", ""] {
        let bytes = [&[VERSION], json.as_bytes()].concat();
        assert!(matches!(decode(&bytes), Err(RecordError::Malformed(_))), "{json}");
    }
}
