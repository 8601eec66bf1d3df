//! The recorded calls, as bytes that can be sent, with the places where they name jobs.
//!
//! Start at [`Reel::record`] and [`Reel::put`]. Jobs are renamed by changing eight digits in the middle of their ids: the first
//! digits are the time, the last one is the shard, and the length stays as it is.
//!
//! Invariant: in one pass a job has one name in all of its calls, and no job has the same name in two passes.

use std::ops::Range;

use bytes::BytesMut;

use super::line::put_command;

/// Digits of a job's id.
const ID_DIGITS: usize = 32;

/// Those that are changed.
const CHANGED: Range<usize> = 20..28;

/// Calls in the order of the server.
#[derive(Debug, Default)]
pub(super) struct Reel {
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    words: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    /// Where ids begin.
    ids: Vec<usize>,
}

impl Reel {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Keeps a call if it names a job; upkeep and heartbeats go on by themselves.
    pub(super) fn record(&mut self, words: &[Vec<u8>]) {
        let mut bytes = BytesMut::new();
        put_command(&mut bytes, words);
        let ids = ids_in(&bytes);
        if !ids.is_empty() {
            self.calls.push(Call { words: words.to_vec(), bytes: bytes.to_vec(), ids });
        }
    }

    /// Writes a call as it is in this pass; pass 0 is what was recorded.
    pub(super) fn put(&self, call: usize, pass: u32, out: &mut BytesMut) {
        let Call { bytes, ids, .. } = &self.calls[call];
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

    /// The last call that can stand on a command line.
    pub(super) fn plain_call(&self) -> Option<Vec<&str>> {
        self.calls.iter().rev().find_map(|call| {
            let words = call.words.iter().map(|word| std::str::from_utf8(word).ok());
            let words = words.collect::<Option<Vec<&str>>>()?;
            (!words.iter().any(|word| word.contains('\0') || word.is_empty())).then_some(words)
        })
    }
}

/// Where there are exactly as many digits in a row as an id has.
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

    fn command(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    fn played(reel: &Reel, pass: u32) -> String {
        let mut out = BytesMut::new();
        reel.put(0, pass, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_pass_renames_jobs_everywhere_and_nothing_else() {
        let mut reel = Reel::default();
        let key = format!("lingua:v1:{{j8}}:job:{ID}");
        reel.record(&command(&["EVALSHA", HASH, "1", &key, ID, "x"]));
        reel.record(&command(&["EVALSHA", HASH, "1", "{c0}:hot", "0"]));
        assert_eq!(reel.len(), 1, "a call without a job is none of the tape's");
        let life = played(&reel, 0);
        assert!(life.contains(&key) && life.contains(HASH));
        let mut names = vec![ID.to_owned()];
        for pass in [1, 2, 0x1f, u32::MAX] {
            let text = played(&reel, pass);
            assert_eq!(text.len(), life.len());
            assert!(text.contains(HASH));
            let name = text.split("job:").nth(1).unwrap()[..32].to_owned();
            assert_eq!(text.matches(&name).count(), 2, "{text}");
            assert_eq!((&name[..20], &name[28..]), (&ID[..20], &ID[28..]), "time and shard stay");
            assert!(!names.contains(&name));
            names.push(name);
        }
    }

    #[test]
    fn only_calls_without_odd_bytes_stand_on_a_command_line() {
        let mut reel = Reel::default();
        reel.record(&command(&["GET", ID]));
        let mut odd = command(&["GET", ID]);
        odd.push(vec![0, 255]);
        reel.record(&odd);
        assert_eq!(reel.plain_call(), Some(vec!["GET", ID]));
    }
}
