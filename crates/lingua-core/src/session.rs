//! A session: somebody speaks, and hears the translation in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `sound.rs` | [`Format`]: how long a frame of audio is, and whether anything is said in it |
//! | `segment.rs` | [`Segmenter`]: turns become segments |
//! | `order.rs` | [`Order`]: each segment is delivered once, in the order spoken |
//! | `pace.rs` | [`Pace`]: nobody speaks faster than time passes, by much |
//!
//! Start at [`Segmenter::audio`] and [`Order::deliver`]. The sound itself is not here: these only say what becomes
//! of it.

mod order;
mod pace;
mod segment;
mod sound;

pub use order::{Delivery, Order};
pub use pace::Pace;
pub use segment::{Cut, Heard, SegmentId, SegmentRules, Segmenter, Speaker};
pub use sound::{Format, FrameError, Measure, PCM_RATES};
