//! Rules for the formats of stored data: documents name the numbers that the code has.
//!
//! Start at [`check`].

use std::path::Path;

use super::{Workspace, finding};

/// A number in the code, and the texts that have to name it; `#` stands for the number.
struct Format {
    file: &'static str,
    constant: &'static str,
    named: &'static [(&'static str, &'static str)],
}

const FORMATS: [Format; 2] = [
    Format {
        file: "crates/lingua-redis/src/format.rs",
        constant: "const FORMAT: u64 = ",
        named: &[
            ("docs/redis-data-model.md", "the format of all data, # |"),
            ("CHANGELOG.md", "new format (# in Redis,"),
        ],
    },
    Format {
        file: "crates/lingua-store/src/embedded/journal/disk.rs",
        constant: "const VERSION: u64 = ",
        named: &[("CHANGELOG.md", ", # in a data directory)")],
    },
];

pub(super) fn check(workspace: &Workspace) -> Vec<String> {
    let text = |path: &str| workspace.files.get(Path::new(path));
    let mut findings = vec![];
    for Format { file, constant, named } in FORMATS {
        let Some(code) = text(file) else { continue };
        let number = code.split(constant).nth(1).and_then(|rest| rest.split(';').next());
        let Some(number) = number else {
            findings.push(finding(Path::new(file), 1, format!("lacks `{constant}`")));
            continue;
        };
        for (document, words) in named {
            let words = words.replace('#', number);
            if !text(document).is_some_and(|text| text.contains(&words)) {
                findings.push(finding(Path::new(document), 1, format!("lacks `{words}`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace;

    #[test]
    fn documents_name_the_formats_of_the_code() {
        let findings = |changelog| {
            let disk = "pub(super) const VERSION: u64 = 6;\n";
            let file = "crates/lingua-store/src/embedded/journal/disk.rs";
            check(&workspace(&[(file, disk), ("CHANGELOG.md", changelog)], vec![]))
        };
        assert!(findings("(5 in Redis, 6 in a data directory)").is_empty());
        let found = findings("(5 in Redis, 4 in a data directory)");
        assert_eq!(found, ["CHANGELOG.md:1: lacks `, 6 in a data directory)`"]);
    }
}
