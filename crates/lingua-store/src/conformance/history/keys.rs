//! Random claims of idempotency keys.

use lingua_core::JobId;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::jobs::JOBS;
use super::{History, pick};
use crate::contract::{ClaimKeyRequest, Store};

impl<S: Store> History<S> {
    pub(super) async fn claim_key(&mut self) {
        let job = |rng: &mut ChaCha8Rng| JobId::new(1 << 100 | rng.random_range(0..JOBS));
        let (job, other) = (job(&mut self.side_rng), job(&mut self.side_rng));
        let replaces = pick(&mut self.side_rng, &[None, Some(other)]);
        let request = ClaimKeyRequest {
            // Few keys, so that claims meet; their first bytes choose different shards.
            key: [self.side_rng.random_range(0..3); 32],
            body: [self.side_rng.random_range(0..2); 32],
            job,
            replaces,
        };
        let reply = self.world.store.claim_key(request.clone()).await.expect("a reply");
        self.note_reply("claim key", &request, &reply);
        assert_eq!(reply, self.model.expect_claim_key(&request));
    }
}
