//! How a job ended, as a store keeps it: JSON.
//!
//! Start at [`Ended::write_json`]. Each job is written once and hardly any is read again, so what serde would make of it field
//! by field is put together by hand.
//!
//! Invariant: the bytes are serde's own, which reads them back.

use std::fmt;
use std::sync::OnceLock;

use lingua_store::contract::Keep;
use serde::Serialize;

use super::{Ended, Try};

/// Bytes that were made from what is beside them: they make no difference.
#[derive(Clone, Default)]
pub(crate) struct Kept(OnceLock<Box<[u8]>>);

impl PartialEq for Kept {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Kept {}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.0.get().map_or(0, |bytes| bytes.len()))
    }
}

impl Keep for Ended {
    fn bytes(&self) -> &[u8] {
        self.kept.0.get_or_init(|| {
            let mut bytes = vec![];
            self.write_json(&mut bytes);
            bytes.into()
        })
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        match self.kept.0.get() {
            Some(kept) => out.extend_from_slice(kept),
            None => self.write_json(out),
        }
    }

    fn bytes_max(&self) -> usize {
        // A character that JSON has to escape takes at most six bytes; what is around the texts takes less than this.
        let text = |text: &Option<String>| 6 * text.as_ref().map_or(0, String::len);
        let of_try = |t: &Try| 256 + 6 * t.node.as_str().len() + text(&t.reason);
        let tries: usize = self.tries.iter().map(of_try).sum();
        let result = self.result.as_ref().map_or(0, |result| result.as_str().len());
        256 + text(&self.error) + text(&self.detail) + result + tries
    }
}

impl Ended {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (name, text) in [("\"error\":", &self.error), ("\"detail\":", &self.detail)] {
            if let Some(text) = text {
                put(out, name, text);
                out.push(b',');
            }
        }
        if let Some(result) = &self.result {
            out.extend_from_slice(b"\"result\":");
            out.extend_from_slice(result.as_str().as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(b"\"tries\":[");
        for (i, this) in self.tries.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            this.write_json(out);
        }
        put(out, "],\"accepted_ms\":", &self.accepted_ms);
        put(out, ",\"ended_ms\":", &self.ended_ms);
        put(out, ",\"waited_ms\":", &self.waited_ms);
        out.push(b'}');
    }
}

impl Try {
    fn write_json(&self, out: &mut Vec<u8>) {
        put(out, "{\"attempt\":", &self.attempt);
        // A name has no character that JSON would escape.
        out.extend_from_slice(b",\"node\":\"");
        out.extend_from_slice(self.node.as_str().as_bytes());
        put(out, "\",\"reserved_ms\":", &self.reserved_ms);
        if let Some(ms) = self.acked_ms {
            put(out, ",\"acked_ms\":", &ms);
        }
        if let Some(ms) = self.ended_ms {
            put(out, ",\"ended_ms\":", &ms);
        }
        if let Some(reason) = &self.reason {
            put(out, ",\"reason\":", reason);
        }
        out.push(b'}');
    }
}

/// Writes a value behind what comes before it.
fn put(out: &mut Vec<u8>, before: &str, value: &impl Serialize) {
    out.extend_from_slice(before.as_bytes());
    // Texts and numbers can be written, and memory takes them.
    serde_json::to_writer(out, value).ok();
}

#[cfg(test)]
mod tests {
    use lingua_core::NodeId;

    use super::*;

    #[test]
    fn the_bytes_are_serdes_own() {
        let this = |attempt, at: Option<u64>, reason: Option<&str>| Try {
            attempt,
            node: NodeId::new("gpu-1.example:8@a_b").unwrap(),
            reserved_ms: 1_700_000_000_000,
            acked_ms: at,
            ended_ms: at.map(|ms| ms + 1),
            reason: reason.map(str::to_owned),
        };
        let odd = "\u{1}\"\\\n语";
        let tries = vec![this(1, Some(0), Some(odd)), this(2, None, None), this(3, Some(9), None)];
        let plain = Ended { accepted_ms: 5, ended_ms: u64::MAX, waited_ms: 0, ..Ended::default() };
        let done = Ended {
            result: Some(r#"{"text": "hello"}"#.to_owned().into()),
            tries: tries[2..].to_vec(),
            ..plain.clone()
        };
        let failed = Ended {
            error: Some("JOB_FAILED".to_owned()),
            detail: Some(odd.to_owned()),
            tries,
            ..plain.clone()
        };
        for ended in [plain, done, failed] {
            let (serdes, mut ours) = (serde_json::to_vec(&ended).unwrap(), vec![]);
            ended.write_to(&mut ours);
            assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(serdes).unwrap());
            assert!(ended.bytes().len() <= ended.bytes_max());
            assert_eq!(serde_json::from_slice::<Ended>(ended.bytes()).unwrap(), ended);
        }
    }
}
