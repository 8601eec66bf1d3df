//! Every message as a file in `golden/`.
//!
//! `<message>.json`, or `<message>.<form>.json` where a message has several. Most are checked in
//! both directions: reading the file gives the value, writing the value gives the file. Files of
//! the form `contract…` and `foreign…` are written by hand, as other people write them, and are
//! only read.
//!
//! Each file is also checked against the JSON Schema of its message.
//!
//! `LINGUA_BLESS=1 cargo nextest run -p lingua-wire golden` writes the others anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use lingua_wire::message::{Message, parse, to_json};
use lingua_wire::names::NAMES;
use lingua_wire::schema::Catalog;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::schema::faults;

mod client;
mod node;
mod scheduler;
mod session;
mod view;

/// The files that were checked, by message.
#[derive(Default)]
struct Golden {
    seen: BTreeMap<&'static str, BTreeSet<String>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is_blessing() -> bool {
    std::env::var_os("LINGUA_BLESS").is_some_and(|value| value == "1")
}

impl Golden {
    /// Reading the file gives the value, and writing the value gives the file.
    fn both<M>(&mut self, form: &str, value: &M)
    where
        M: Message + Serialize + Deserialize<'static> + PartialEq + Debug + JsonSchema,
    {
        let file = self.file::<M>(form);
        let written = to_json(value);
        if is_blessing() {
            let text = serde_json::to_string_pretty(value).expect("JSON") + "\n";
            std::fs::write(folder("golden").join(&file), text).expect("a golden file");
        }
        let json: Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(json, self.read(&file, value), "writing gives another {file}");
        fits(&file, &json, |catalog| catalog.answer::<M>());
        assert_eq!(
            &parse::<M>(written.leak().as_bytes()).expect("a message"),
            value,
            "reading it back"
        );
    }

    /// Reading the file, which others wrote, gives the value.
    fn inbound<M>(&mut self, form: &str, value: &M)
    where
        M: Message + Deserialize<'static> + PartialEq + Debug + JsonSchema,
    {
        let file = self.file::<M>(form);
        self.read(&file, value);
    }

    fn file<M: Message>(&mut self, form: &str) -> String {
        let file = match form {
            "" => format!("{}.json", M::NAME),
            form => format!("{}.{form}.json", M::NAME),
        };
        assert!(self.seen.entry(M::NAME).or_default().insert(file.clone()), "{file} comes twice");
        file
    }

    fn read<M>(&self, file: &str, expected: &M) -> Value
    where
        M: Message + Deserialize<'static> + PartialEq + Debug + JsonSchema,
    {
        let text = std::fs::read_to_string(folder("golden").join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}; write it with LINGUA_BLESS=1"));
        let json: Value = serde_json::from_str(&text).expect("JSON");
        // Without the file's white space, which is kept in what is passed on as it came.
        let compact: &'static str = json.to_string().leak();
        assert_eq!(&parse::<M>(compact.as_bytes()).expect("a message"), expected, "reading {file}");
        assert!(parse::<M>(text.leak().as_bytes()).is_ok(), "reading {file} with white space");
        fits(file, &json, |catalog| catalog.request::<M>());
        json
    }
}

/// The file is what the schema says.
fn fits(file: &str, json: &Value, schema: impl Fn(&mut Catalog) -> Value) {
    let mut catalog = Catalog::default();
    let mut document = schema(&mut catalog);
    document["components"] = json!({"schemas": catalog.into_definitions()});
    let wrong = faults(&document, json);
    assert!(wrong.is_empty(), "{file}: {wrong:?}\n{document:#}");
}

fn all() -> Golden {
    let mut golden = Golden::default();
    node::all(&mut golden);
    scheduler::all(&mut golden);
    client::all(&mut golden);
    view::all(&mut golden);
    session::all(&mut golden);
    golden
}

#[test]
fn golden_files_hold_and_every_message_has_one() {
    let golden = all();
    let names: BTreeSet<&str> = NAMES.iter().copied().collect();
    assert_eq!(names.len(), NAMES.len(), "two messages have one name");
    let seen: BTreeSet<&str> = golden.seen.keys().copied().collect();
    let missing: Vec<_> = names.symmetric_difference(&seen).collect();
    assert!(missing.is_empty(), "no golden file for, or no message called: {missing:?}");

    let on_disk: BTreeSet<String> = std::fs::read_dir(folder("golden"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let used: BTreeSet<String> = golden.seen.into_values().flatten().collect();
    assert_eq!(on_disk, used, "files that no test checks");
}
