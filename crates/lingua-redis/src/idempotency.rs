//! Idempotency keys: one script on a shard of them.

use lingua_core::JobId;
use lingua_store::Result;
use lingua_store::contract::{ClaimKeyReply, ClaimKeyRequest, KeyRecord};
use redis::Value;

use crate::jobs::per_shard;
use crate::reply::{convert, corrupt};
use crate::script::KEY_CLAIM;
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn claim_key(&self, request: ClaimKeyRequest) -> Result<ClaimKeyReply> {
        let ClaimKeyRequest { key, body, job, replaces } = request;
        let limits = &self.options.limits;
        let args = (
            &key[..],
            [&job_bytes(job)[..], &body].concat(),
            replaces.map(job_bytes).map_or(vec![], Vec::from),
            limits.job_record_ms,
            per_shard(limits.keys_max),
        );
        match self.call(&KEY_CLAIM, &self.keys.idempotency(&key), args).await? {
            Value::Int(_) => Ok(ClaimKeyReply::Claimed),
            taken => Ok(ClaimKeyReply::Taken(read(&convert::<Vec<u8>>(taken)?)?)),
        }
    }
}

fn job_bytes(job: JobId) -> [u8; 16] {
    job.number().to_be_bytes()
}

fn read(record: &[u8]) -> Result<KeyRecord> {
    let malformed = || corrupt(&format!("the key's record {:?}", record.escape_ascii()));
    let (job, body) = record.split_first_chunk::<16>().ok_or_else(malformed)?;
    let job = JobId::new(u128::from_be_bytes(*job));
    Ok(KeyRecord { job, body: body.try_into().map_err(|_| malformed())? })
}
