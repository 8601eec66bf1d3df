//! For fuzzing: reads any bytes as grants, headers, references to audio and sound.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use futures_util::FutureExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use lingua_core::{JobId, Tenant};
use serde_json::Value;

use crate::audio_ref::AudioRefRules;
use crate::auth::{GrantKey, Tokens, shown_token};
use crate::caller_address::{TrustedProxies, proxied_peer};
use crate::guard::{host_name, is_loopback};
use crate::session::VoiceDetector;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A time in the year 2100, which the claims of the corpus are made for.
const NOW_MS: u64 = 4_102_444_800_000;

/// Reads bytes as a grant; if they are JSON, also as the claims of a grant with a good signature.
pub fn read_grant(input: &[u8]) {
    let key = GrantKey::from_secret("k", Tenant::default(), SECRET).expect("a long secret");
    let tokens = Tokens::default().with_keys(vec![key]);
    let shown = String::from_utf8_lossy(input);
    assert!(tokens.identify(Some(&shown), NOW_MS).is_err(), "a grant that nobody signed");
    let Ok(claims) = serde_json::from_slice::<Value>(input) else { return };
    let (header, key) = (Header::new(Algorithm::HS256), EncodingKey::from_secret(SECRET));
    if let Ok(signed) = jsonwebtoken::encode(&header, &claims, &key) {
        tokens.identify(Some(&signed), NOW_MS).ok();
    }
}

/// Reads bytes as the header of the PROXY protocol, and as `X-Forwarded-For`.
pub fn read_proxy_header(input: &[u8]) {
    let v2 = [&b"\r\n\r\n\0\r\nQUIT\n"[..], input].concat();
    for bytes in [input, &v2] {
        let read = proxied_peer(&mut &bytes[..]).now_or_never();
        assert!(read.is_some(), "it waits for more than there is");
    }
    let Ok(name) = HeaderValue::from_bytes(input) else { return };
    let everybody = ["0.0.0.0/0", "::/0"].map(|range| range.parse().expect("a range of addresses"));
    let headers = HeaderMap::from_iter([("x-forwarded-for".parse().expect("a name"), name)]);
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    TrustedProxies::new(everybody.into()).caller(peer, &headers);
}

/// Reads bytes as the parts of a request that are no JSON: a reference to audio, the `Host`, a
/// token in either header, the cursor of a list.
pub fn read_request_parts(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let listed = AudioRefRules { hosts: vec!["*.example.com".into()], ..AudioRefRules::default() };
    for rules in [AudioRefRules::default(), listed] {
        if rules.check(&text).is_ok() {
            let scheme = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
            assert!(rules.schemes.contains(&scheme), "{text:?} has another scheme");
        }
    }
    is_loopback(host_name(&text));
    if let Ok(job) = text.parse::<JobId>() {
        assert_eq!(job.to_string().parse(), Ok(job));
    }
    let Ok(value) = HeaderValue::from_bytes(input) else { return };
    for name in [header::AUTHORIZATION, header::SEC_WEBSOCKET_PROTOCOL] {
        let headers = HeaderMap::from_iter([(name, value.clone())]);
        let shown = shown_token(&headers);
        assert!(shown.is_none_or(|token| text.contains(token)));
    }
}

/// Looks for a voice in bytes as samples; the first two are the sample rate.
pub fn detect_voice(input: &[u8]) {
    let Some((rate, sound)) = input.split_first_chunk() else { return };
    let mut voice = VoiceDetector::new(u16::from_be_bytes(*rate).into());
    for frame in sound.chunks(321) {
        voice.is_speech(frame);
    }
}
