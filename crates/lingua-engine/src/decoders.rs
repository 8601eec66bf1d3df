//! For fuzzing: reads any bytes as what this crate stores and sends to other instances, and as the
//! audio that it counts.

use lingua_core::session::AudioEncoding;

use crate::bus::message::{BATCH_VERSION, decode_batch, encode_batch};
use crate::job_spec_codec;
use crate::request::JobEnd;
use crate::session::StoredSession;
use crate::table::PoolTable;
use crate::usage_count;

/// The longest packet of Opus.
const OPUS_PACKET_MS_MAX: u64 = 120;

/// Reads bytes as a job's spec of this version. What can be read is the same when it is written and
/// read again.
pub fn read_job_spec(input: &[u8]) {
    let record = [&[job_spec_codec::VERSION], input].concat();
    if let Ok(spec) = job_spec_codec::decode(&record) {
        assert_eq!(job_spec_codec::decode(&job_spec_codec::encode(&spec)), Ok(spec));
    }
    job_spec_codec::decode(input).ok();
}

/// Reads bytes as a job's end, a session and a pool table of this version.
pub fn read_records(input: &[u8]) {
    let record = |version: u8| [&[version], input].concat();
    if let Some(end) = JobEnd::decode(&record(JobEnd::VERSION)) {
        assert_eq!(JobEnd::decode(&end.encode()), Some(end));
    }
    if let Some(session) = StoredSession::decode(&record(StoredSession::VERSION)) {
        session.session("sess-1");
        assert_eq!(StoredSession::decode(&session.encode()), Some(session));
    }
    if let Ok(table) = PoolTable::decode(&record(PoolTable::VERSION)) {
        table.pools_for(lingua_core::Tenant::default());
        assert!(PoolTable::decode(&table.encode()).is_ok());
    }
}

/// Reads bytes as a batch of messages of another instance.
pub fn read_bus_messages(input: &[u8]) {
    let batch = [&[BATCH_VERSION], input].concat();
    if let Some((from, messages)) = decode_batch(&batch) {
        let encoded: Vec<_> = messages.iter().map(|message| message.encode()).collect();
        let again = encode_batch(&from, encoded.iter().map(Vec::as_slice));
        assert_eq!(decode_batch(&again), Some((from, messages)));
    }
}

/// Measures bytes as a WAV file, as packets of Opus and as one frame of either format. No audio is
/// longer than its bytes allow.
pub fn measure_audio(input: &[u8]) {
    let most_ms = (input.len() as u64).saturating_mul(OPUS_PACKET_MS_MAX);
    assert!(usage_count::opus_ms(input) <= most_ms, "too long for {} bytes", input.len());
    usage_count::wav_ms(input);
    for encoding in [AudioEncoding::Opus, AudioEncoding::Pcm16 { sample_rate: 16_000 }] {
        encoding.measure(input).ok();
    }
}
