//! What tenants have used: one typed function for each script on the counts.

use lingua_core::Tenant;
use lingua_store::contract::{
    USAGE_COUNTS, USAGE_TENANTS_MAX, UsageBatch, UsageCounts, UsageRecord,
};
use lingua_store::{Result, StoreError};

use crate::record::{RecordReader, RecordWriter};
use crate::reply::parse;
use crate::script::{USAGE_ADD, USAGE_LIST};
use crate::store::RedisStore;

impl RedisStore {
    pub(crate) async fn add_usage(&self, batch: UsageBatch) -> Result<bool> {
        StoreError::check_limit("tenants of a batch", batch.counts.len(), USAGE_TENANTS_MAX)?;
        let counts: Vec<(String, Vec<u8>)> = batch
            .counts
            .iter()
            .map(|(tenant, counts)| {
                let numbers = counts.numbers().into_iter();
                (tenant.to_string(), numbers.fold(RecordWriter::default(), RecordWriter::double).0)
            })
            .collect();
        let keys = [self.keys.usage("counts"), self.keys.usage(&last_of(&batch))];
        let added: u64 = self.call(&USAGE_ADD, &keys, (batch.sequence, counts)).await?;
        Ok(added == 1)
    }

    pub(crate) async fn usage(&self, tenant: Option<Tenant>) -> Result<Vec<UsageRecord>> {
        let of = tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let keys = [self.keys.usage("counts")];
        let found: Vec<(u64, String, Vec<u8>)> = self.call(&USAGE_LIST, &keys, of).await?;
        let record = |(day, name, counts): (u64, String, Vec<u8>)| {
            Ok(UsageRecord { day, tenant: parse(&name)?, counts: read_counts(&counts)? })
        };
        let mut records = self.all_readable(found.into_iter().map(record))?;
        records.sort_unstable_by_key(|record| (record.day, record.tenant));
        Ok(records)
    }
}

pub(crate) fn read_counts(packed: &[u8]) -> Result<UsageCounts> {
    let mut reader = RecordReader(packed);
    let mut numbers = [0; USAGE_COUNTS];
    for number in &mut numbers {
        *number = reader.double()?;
    }
    Ok(UsageCounts::of(numbers))
}

fn last_of(batch: &UsageBatch) -> String {
    format!("last:{:016x}", batch.incarnation.0)
}
