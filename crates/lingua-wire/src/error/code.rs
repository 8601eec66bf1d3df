//! Every error code that users see, with its HTTP status.
//!
//! Start at [`ErrorCode`]. Invariant: names and statuses are those of the published table; people
//! script against them.

use std::fmt;

use schemars::{JsonSchema, Schema};

macro_rules! codes {
    ($($(#[$doc:meta])* $Variant:ident = $name:literal, $status:literal;)*) => {
        /// What went wrong. A later version may know further codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
        #[schemars(transform = open)]
        pub enum ErrorCode {
            $($(#[$doc])* #[schemars(rename = $name)] $Variant,)*
        }

        impl ErrorCode {
            /// All codes that this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];

            /// The code as users see it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)*
                }
            }

            /// The status of the HTTP response.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$Variant => $status,)*
                }
            }
        }
    };
}

/// Lets a client accept codes that are newer than itself.
fn open(schema: &mut Schema) {
    if let Some(serde_json::Value::Array(mut known)) = schema.remove("oneOf") {
        known.push(serde_json::json!({"type": "string"}));
        schema.insert("anyOf".to_owned(), known.into());
    }
}

codes! {
    /// No registered node can serve the job.
    NoCapableNode = "NO_CAPABLE_NODE", 503;
    /// Capable nodes exist, but none took the job in time.
    AllCandidatesFullOrFailed = "ALL_CANDIDATES_FULL_OR_FAILED", 503;
    /// The preferred node cannot serve the job.
    PreferredNodeNotCapable = "PREFERRED_NODE_NOT_CAPABLE", 422;
    /// The store is unreachable.
    SchedulerDependencyDown = "SCHEDULER_DEPENDENCY_DOWN", 503;
    /// The node is unknown: it has to register.
    NodeNotRegistered = "NODE_NOT_REGISTERED", 404;
    /// A newer registration of the same node has taken over.
    StaleEpoch = "STALE_EPOCH", 409;
    /// The job has moved on to another attempt, or has ended.
    StaleAttempt = "STALE_ATTEMPT", 409;
    /// No such job.
    JobNotFound = "JOB_NOT_FOUND", 404;
    /// No such node.
    NodeNotFound = "NODE_NOT_FOUND", 404;
    /// No such pool.
    PoolNotFound = "POOL_NOT_FOUND", 404;
    /// The list of languages that the node recognises is missing or empty.
    AsrLanguagesRequired = "ASR_LANGUAGES_REQUIRED", 422;
    /// The list of languages that the node repairs is missing or empty.
    SemanticLanguagesRequired = "SEMANTIC_LANGUAGES_REQUIRED", 422;
    /// The list of languages that the node speaks is missing or empty.
    TtsLanguagesRequired = "TTS_LANGUAGES_REQUIRED", 422;
    /// A value is not a language, or not one that may be used there.
    InvalidLanguage = "INVALID_LANGUAGE", 422;
    /// The request cannot be understood.
    InvalidRequest = "INVALID_REQUEST", 400;
    /// The request is too big.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413;
    /// Too many requests.
    RateLimited = "RATE_LIMITED", 429;
    /// The token is missing or unknown.
    Unauthorized = "UNAUTHORIZED", 401;
    /// The token does not allow this.
    Forbidden = "FORBIDDEN", 403;
    /// The idempotency key was used with another body.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", 422;
    /// The deadline of the job has passed.
    DeadlineExceeded = "DEADLINE_EXCEEDED", 504;
    /// The instance that held the audio has died.
    InstanceLost = "INSTANCE_LOST", 503;
    /// The node failed and reported that a retry cannot help.
    NodeFailed = "NODE_FAILED", 502;
    /// No such session, or the wrong resume token.
    SessionNotFound = "SESSION_NOT_FOUND", 404;
    /// The client of the session sent nothing for too long.
    SessionIdle = "SESSION_IDLE", 408;
    /// There is no place for another node.
    FleetFull = "FLEET_FULL", 503;
    /// Another token owns the node id.
    NodeIdTaken = "NODE_ID_TAKEN", 403;
    /// A fault in the scheduler itself.
    Internal = "INTERNAL", 500;
}

impl ErrorCode {
    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Whether the same request may succeed later and cannot have been carried out now.
    pub const fn is_safe_to_retry(self) -> bool {
        matches!(
            self,
            Self::NoCapableNode
                | Self::AllCandidatesFullOrFailed
                | Self::SchedulerDependencyDown
                | Self::RateLimited
                | Self::FleetFull
                | Self::InstanceLost
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
