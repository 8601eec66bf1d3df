//! Runs the target that the environment names: `LINGUA_FUZZ_TARGET=job_spec`. One program for all
//! targets, because each would take as long to build as this one.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<lingua_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("LINGUA_FUZZ_TARGET").unwrap_or_default();
    lingua_fuzz::target(&name).unwrap_or_else(|| panic!("no target {name:?}"))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
