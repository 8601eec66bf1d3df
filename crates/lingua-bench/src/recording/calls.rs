//! The recorded calls as bytes, with the places of the job ids in them.
//!
//! Start at [`CallLog::record`] and [`CallLog::put`]. A copy has other jobs: eight digits in the
//! middle of each id are changed. The first digits are the time, the last one is the shard, and the
//! length stays.
//!
//! Invariant: in one pass a job has one id in all of its calls, and no two passes share an id.

use std::ops::Range;

use bytes::BytesMut;

use super::connection::put_command;

const ID_DIGITS: usize = 32;

/// The digits that are changed.
const CHANGED: Range<usize> = 20..28;

/// Calls in the order in which the server received them.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    calls: Vec<RecordedCall>,
}

#[derive(Debug)]
struct RecordedCall {
    args: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    /// Where job ids begin.
    ids: Vec<usize>,
}

impl CallLog {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Keeps a call if it is about a job; upkeep and heartbeats go on during a replay.
    pub(super) fn record(&mut self, args: &[Vec<u8>]) {
        let mut bytes = BytesMut::new();
        put_command(&mut bytes, args);
        let ids = ids_in(&bytes);
        if !ids.is_empty() {
            self.calls.push(RecordedCall { args: args.to_vec(), bytes: bytes.to_vec(), ids });
        }
    }

    /// Writes the copy of a call for this pass; pass 0 is the recorded call.
    pub(super) fn put(&self, call: usize, pass: u32, out: &mut BytesMut) {
        let RecordedCall { bytes, ids, .. } = &self.calls[call];
        let start = out.len();
        out.extend_from_slice(bytes);
        for id in ids {
            let digits = &mut out[start + id..][CHANGED];
            for (place, digit) in digits.iter_mut().rev().enumerate() {
                let change = (pass >> (4 * place)) & 0xf;
                let changed = char::from(*digit).to_digit(16).map(|digit| digit ^ change);
                let changed = changed.and_then(|digit| char::from_digit(digit, 16));
                *digit = changed.map_or(*digit, |digit| digit as u8);
            }
        }
    }

    /// The last call that can be given on a command line.
    pub(super) fn plain_call(&self) -> Option<Vec<&str>> {
        self.calls.iter().rev().find_map(|call| {
            let args = call.args.iter().map(|arg| std::str::from_utf8(arg).ok());
            let args = args.collect::<Option<Vec<&str>>>()?;
            (!args.iter().any(|arg| arg.contains('\0') || arg.is_empty())).then_some(args)
        })
    }
}

/// Where there are exactly as many hexadecimal digits in a row as an id has.
fn ids_in(bytes: &[u8]) -> Vec<usize> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let (mut ids, mut at) = (vec![], 0);
    while at < bytes.len() {
        let digits = bytes[at..].iter().take_while(|byte| is_digit(byte)).count();
        if digits == ID_DIGITS {
            ids.push(at);
        }
        at += digits + 1;
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "45b2c482977046b862b64e42e6ec818c3d4bcf77";
    const ID: &str = "01a1e393c4a47000a1cc384942da6f88";

    fn command(args: &[&str]) -> Vec<Vec<u8>> {
        args.iter().map(|arg| arg.as_bytes().to_vec()).collect()
    }

    fn replayed(log: &CallLog, pass: u32) -> String {
        let mut out = BytesMut::new();
        log.put(0, pass, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_pass_changes_job_ids_and_nothing_else() {
        let mut log = CallLog::default();
        let key = format!("lingua:v1:{{j8}}:job:{ID}");
        log.record(&command(&["EVALSHA", HASH, "1", &key, ID, "x"]));
        log.record(&command(&["EVALSHA", HASH, "1", "{c0}:hot", "0"]));
        assert_eq!(log.len(), 1, "a call without a job is not kept");
        let recorded = replayed(&log, 0);
        assert!(recorded.contains(&key) && recorded.contains(HASH));
        let mut ids = vec![ID.to_owned()];
        for pass in [1, 2, 0x1f, u32::MAX] {
            let text = replayed(&log, pass);
            assert_eq!(text.len(), recorded.len());
            assert!(text.contains(HASH));
            let id = text.split("job:").nth(1).unwrap()[..32].to_owned();
            assert_eq!(text.matches(&id).count(), 2, "{text}");
            assert_eq!((&id[..20], &id[28..]), (&ID[..20], &ID[28..]), "time and shard stay");
            assert!(!ids.contains(&id));
            ids.push(id);
        }
    }

    #[test]
    fn a_call_for_the_command_line_is_plain_text() {
        let mut log = CallLog::default();
        log.record(&command(&["GET", ID]));
        let mut odd = command(&["GET", ID]);
        odd.push(vec![0, 255]);
        log.record(&odd);
        assert_eq!(log.plain_call(), Some(vec!["GET", ID]));
    }
}
