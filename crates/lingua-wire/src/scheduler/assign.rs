//! A job on its way to a node.
//!
//! Start at [`JobAssign`]. It borrows its texts: it is written once for every attempt.

use std::borrow::Cow;

use lingua_core::{Attempt, Fence, JobId, Lang, ServiceSet, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audio::Audio;
use crate::message::Message;
use crate::schema::Shown;
use crate::{plain, text};

/// A job to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "job_assign")]
#[schemars(rename = "JobAssign")]
pub struct JobAssign<'a> {
    /// Which job.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<JobId>")]
    pub job_id: JobId,
    /// Which try.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Attempt>")]
    pub attempt_id: Attempt,
    /// Rises with every assignment; a node refuses one that is lower than it has seen.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Fence>")]
    pub fence: Fence,
    /// The conversation that it belongs to.
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
    /// What is spoken, or `auto`.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Source>")]
    pub src_lang: Source,
    /// What it becomes.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<Lang>")]
    pub tgt_lang: Lang,
    /// Where the audio lies.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub audio_ref: Option<Cow<'a, str>>,
    /// The audio itself.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio<'a>>,
    /// Text instead of audio.
    #[serde(
        borrow,
        default,
        deserialize_with = "text::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub text: Option<Cow<'a, str>>,
    /// With `auto`: it is one of these two languages, and the target is the other one.
    #[serde(
        default,
        serialize_with = "plain::list::serialize",
        deserialize_with = "plain::list::deserialize::<_, _, 2>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<Vec<Shown<Lang>>>", length(max = 2))]
    pub two_way: Option<Vec<Lang>>,
    /// What was said before in this conversation, the oldest first.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Cow<'a, str>>,
    /// What the client asked for.
    #[serde(default)]
    pub options: AssignOptions,
    /// How many milliseconds are left. A length of time and not a moment, because the clocks of
    /// nodes differ from ours.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// The binding that brought it here.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind<'a>>,
    /// Follows the job through all logs.
    #[serde(borrow)]
    pub trace_id: Cow<'a, str>,
}

impl JobAssign<'_> {
    /// The same, independent of the frame that it was read from.
    pub fn into_owned(self) -> JobAssign<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }

        JobAssign {
            session_id: own(self.session_id),
            audio_ref: self.audio_ref.map(own),
            audio: self.audio.map(Audio::into_owned),
            text: self.text.map(own),
            bind: self.bind.map(|bind| Bind { bind_key: own(bind.bind_key), moved: bind.moved }),
            trace_id: own(self.trace_id),
            context: self.context.into_iter().map(own).collect(),
            two_way: self.two_way,
            job_id: self.job_id,
            attempt_id: self.attempt_id,
            fence: self.fence,
            src_lang: self.src_lang,
            tgt_lang: self.tgt_lang,
            options: self.options,
            deadline_ms: self.deadline_ms,
        }
    }
}

impl Message for JobAssign<'_> {
    const NAME: &'static str = "job_assign";
}

/// What the client asked for, as far as the node has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AssignOptions {
    /// The answer has to be spoken.
    pub require_tts: bool,
    /// Further services.
    #[serde(with = "plain")]
    #[schemars(with = "Shown<ServiceSet>")]
    pub services: ServiceSet,
    /// More is more urgent.
    pub priority: i32,
}

/// Segments with one key go to one node while that is possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bind<'a> {
    /// The key.
    #[serde(borrow)]
    pub bind_key: Cow<'a, str>,
    /// Whether earlier segments went to another node, so that their context is not here.
    #[serde(default)]
    pub moved: bool,
}

/// The answer of `GET /v1/node/{id}/jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeJobs<'a> {
    /// Jobs to do; audio is inside, since there is no frame that could follow.
    #[serde(borrow)]
    pub jobs: Vec<JobAssign<'a>>,
}

impl Message for NodeJobs<'_> {
    const NAME: &'static str = "node_jobs";
}
