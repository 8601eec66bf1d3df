//! The name of every message.
//!
//! A frame has its name in `type`; a golden file is called after the message that it shows.

use crate::client::*;
use crate::error::{ErrorBody, RequestError};
use crate::message::Message;
use crate::node::*;
use crate::scheduler::*;
use crate::session::*;
use crate::view::*;

/// Gives each message its name and, where there is one, its check.
macro_rules! messages {
    ($($Type:ty = $name:literal $(, $check:ident)?;)*) => {
        /// The names of all messages.
        pub const NAMES: &[&str] = &[$($name),*];

        $(impl Message for $Type {
            const NAME: &'static str = $name;

            $(fn check(&self) -> Result<(), RequestError> {
                self.$check()
            })?
        })*
    };
}

messages! {
    // A node to the scheduler, by socket or by HTTP.
    Register = "register", check_bounds;
    Heartbeat = "heartbeat";
    JobAck = "job_ack";
    JobPartial<'_> = "job_partial", check_bounds;
    JobDone<'_> = "job_done", check_bounds;
    JobFail<'_> = "job_fail", check_bounds;
    Bye<'_> = "bye", check_bounds;
    Offline = "offline";

    // The scheduler to a node.
    Registered = "registered";
    HeartbeatAck = "heartbeat_ack";
    JobAssign<'_> = "job_assign";
    AudioEnd = "audio_end";
    JobCancel<'_> = "job_cancel";
    JobConfirmed = "job_confirmed";
    Drain = "drain";
    ErrorMessage<'_> = "error";
    RegisterResponse = "register_response";
    HeartbeatResponse = "heartbeat_response";
    NodeJobs<'_> = "node_jobs";
    OkResponse = "ok_response";

    // A client to the scheduler, and back.
    Dispatch<'_> = "dispatch";
    DispatchResponse = "dispatch_response";
    CancelResponse = "cancel_response";
    ErrorBody = "error_body";

    // Sessions.
    SessionStart = "session_start";
    SessionResume = "session_resume", check_bounds;
    TurnStart = "turn_start";
    TurnEnd = "turn_end";
    TextTurn<'_> = "text", check_bounds;
    SessionEnd = "session_end";
    SessionStarted = "session_started";
    JobAccepted = "job_accepted";
    SessionPartial = "partial";
    SegmentResult<'_> = "result";
    SegmentMissing = "missing";

    // What people and tools look at.
    JobView = "job_view";
    JobList = "job_list";
    NodeView = "node_view";
    NodeList = "node_list";
    PoolView = "pool_view";
    PoolList = "pool_list";
    ClusterView = "cluster_view";
    MeView = "me_view";
    UsageView = "usage_view";
    EraseResponse = "erase_response";
    ExplainResponse = "explain_response";
    NodeUpdate = "node_update";
    JobUpdate = "job_update";
    PoolUpdate = "pool_update";
    LeaderUpdate = "leader_update";
}
