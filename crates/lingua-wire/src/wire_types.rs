//! How types of the wire are declared.
//!
//! Start at [`wire_types`].

/// Declares types that are read, written and described as JSON. A field needs no attribute for
/// its type: values of the core are written as `json.rs` says, texts are borrowed, and `None` is
/// left out unless the field has `#[serialize_always]`.
macro_rules! wire_types {
    (without Eq; $($types:tt)*) => {
        $crate::wire_types::wire_types! { @derive (Debug, Clone, PartialEq) $($types)* }
    };
    (@derive $traits:tt $(
        $(#[$meta:meta])*
        pub struct $Name:ident $(<$life:lifetime>)? { $($fields:tt)* }
    )*) => {$(
        #[serde_with::apply(
            Attempt => #[serde(with = "crate::json::As::<Attempt>")],
            Epoch => #[serde(with = "crate::json::As::<Epoch>")],
            Fence => #[serde(with = "crate::json::As::<Fence>")],
            InstanceId => #[serde(with = "crate::json::As::<InstanceId>")],
            JobId => #[serde(with = "crate::json::As::<JobId>")],
            JobState => #[serde(with = "crate::json::As::<JobState>")],
            Lang => #[serde(with = "crate::json::As::<Lang>")],
            LangPair => #[serde(with = "crate::json::As::<LangPair>")],
            NodeId => #[serde(with = "crate::json::As::<NodeId>")],
            NodeState => #[serde(with = "crate::json::As::<NodeState>")],
            ServiceSet => #[serde(with = "crate::json::As::<ServiceSet>")],
            Source => #[serde(with = "crate::json::As::<Source>")],
            Term => #[serde(with = "crate::json::As::<Term>")],
            Option<Fence> => #[serde(default, with = "crate::json::As::<Option<Fence>>")],
            Option<InstanceId> => #[serde(default, with = "crate::json::As::<Option<InstanceId>>")],
            Option<JobId> => #[serde(default, with = "crate::json::As::<Option<JobId>>")],
            Option<LangPair> => #[serde(default, with = "crate::json::As::<Option<LangPair>>")],
            Option<NodeId> => #[serde(default, with = "crate::json::As::<Option<NodeId>>")],
            Cow => #[serde(borrow)],
            Option<Cow> => #[serde(borrow, default, deserialize_with = "crate::json::text")],
            Option<Audio> => #[serde(borrow, default)],
            Option<Bind> => #[serde(borrow, default)],
        )]
        #[serde_with::skip_serializing_none]
        #[derive $traits]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        $(#[$meta])*
        pub struct $Name $(<$life>)? { $($fields)* }
    )*};
    ($($types:tt)*) => {
        $crate::wire_types::wire_types! { @derive (Debug, Clone, PartialEq, Eq) $($types)* }
    };
}

pub(crate) use wire_types;
