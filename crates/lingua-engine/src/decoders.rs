//! For fuzzing: reads any bytes as what this crate stores and sends to other instances.

use crate::bus::message::{BATCH_VERSION, decode_batch, encode_batch};
use crate::job_spec_codec;
use crate::request::JobEnd;
use crate::session::StoredSession;
use crate::table::PoolTable;

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
