//! The format of the data: the layout of keys and records as a whole.
//!
//! Start at [`check`]. Every new connection asks for it before anything else, so that a program
//! never reads or writes data of another format.

use lingua_store::StoreError;

use crate::connect::RawConnection;
use crate::error::unavailable;
use crate::keys::Keys;
use crate::script;

/// Raised with every change that an older or a newer program would misread.
pub(crate) const FORMAT: u64 = 6;

/// Fails unless the data has the format of this program; gives it to a store without data.
/// `was_ours` says that this process has found its format there before.
pub(crate) async fn check(
    link: &mut RawConnection,
    keys: &Keys,
    was_ours: bool,
) -> Result<(), StoreError> {
    let [_, feed_head] = keys.feed();
    let names =
        [keys.cluster("format"), keys.cluster("leader"), feed_head, keys.cluster("instances")];
    let by_hash = script::FORMAT.command(0, &names, (FORMAT, u8::from(was_ours)));
    let reply = link.send(&script::FORMAT.command_in_full(&by_hash)).await;
    let reply = reply.map_err(|error| unavailable(&error))?;
    match redis::from_redis_value::<u64>(reply) {
        Ok(FORMAT) => Ok(()),
        Ok(found) => Err(StoreError::OtherFormat { found, known: FORMAT }),
        Err(error) => Err(StoreError::Corrupt { detail: format!("its format: {error}") }),
    }
}
