//! The pure rules of a session: one client speaks and gets translations in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | [`SessionPlan`]: what the client asked for, and the direction of each segment |
//! | `encoding.rs` | [`AudioEncoding`]: how long an audio frame is, and whether it is silent |
//! | `rate_limit.rs` | [`AudioRateLimit`]: how much faster than real time audio may arrive |
//! | `segment.rs` | [`Segmenter`]: cuts turns into segments |
//! | `delivery_queue.rs` | [`DeliveryQueue`]: delivers each segment once, in the order spoken |
//!
//! Start at [`Segmenter::audio`] and [`DeliveryQueue::deliver`]. The audio itself is not here:
//! these types only decide what happens to it.

mod delivery_queue;
mod encoding;
mod plan;
mod rate_limit;
mod segment;

pub use delivery_queue::{Delivery, DeliveryQueue};
pub use encoding::{AudioEncoding, FrameError, FrameMeasure, PCM_RATES};
pub use plan::{Direction, SegmentDirection, SessionPlan};
pub use rate_limit::AudioRateLimit;
pub use segment::{FrameOutcome, SegmentId, SegmentRules, SegmentStart, Segmenter, Speaker};
