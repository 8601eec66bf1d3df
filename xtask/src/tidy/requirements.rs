//! Rules for `docs/requirements.md`: the tests that it names exist, and both cite each other.
//!
//! Start at [`check`]. A requirement is a row `| id | requirement | document | ruling | proof |`.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Workspace, finding};

const DOCUMENT: &str = "docs/requirements.md";

/// The kinds of proof, as the table of counts names them.
const KINDS: [&str; 5] =
    ["from outside", "from outside, in part", "only inside", "none", "ruled out"];

struct Requirement<'a> {
    id: &'a str,
    proof: &'a str,
    line: usize,
}

pub(super) fn check(workspace: &Workspace) -> Vec<String> {
    let path = Path::new(DOCUMENT);
    let Some(text) = workspace.files.get(path) else { return vec![] };
    let requirements: Vec<Requirement<'_>> =
        text.lines().zip(1..).filter_map(|(line, number)| requirement(line, number)).collect();
    let mut findings = vec![];
    let mut ids = BTreeSet::new();
    for requirement in &requirements {
        let Requirement { id, line, .. } = *requirement;
        let mut report = |message| findings.push(finding(path, line, message));
        if !ids.insert(id) {
            report(format!("a second `{id}`"));
        }
        if requirement.kind().is_none() {
            report(format!("`{id}` has no proof; write `none` if there is none"));
        }
        for test in requirement.tests() {
            match find(workspace, test) {
                None => report(format!("no test `{test}`")),
                Some(comments) if is_inside(test) || cites(&comments, id) => {}
                Some(_) => report(format!("`{test}` does not cite {id}")),
            }
        }
    }
    for kind in KINDS {
        let count = requirements.iter().filter(|it| it.kind() == Some(kind)).count();
        let row = format!("| {kind} | {count} |");
        if !text.lines().any(|line| line == row) {
            findings.push(finding(path, 1, format!("the table of counts lacks `{row}`")));
        }
    }
    findings.extend(unknown_ids(workspace, &ids));
    findings
}

/// The requirement in a line, if it is a row that begins with an id.
fn requirement(text: &str, line: usize) -> Option<Requirement<'_>> {
    let row = text.strip_prefix("| ")?.strip_suffix(" |")?;
    let id = row.split(' ').next().filter(|id| is_id(id))?;
    Some(Requirement { id, proof: row.rsplit("| ").next()?, line })
}

impl<'a> Requirement<'a> {
    /// The tests that the proof names.
    fn tests(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        // What stands between an odd and an even backtick is code.
        self.proof.split('`').skip(1).step_by(2).filter(|code| code.contains("::"))
    }

    fn kind(&self) -> Option<&'static str> {
        let is_part = self.proof.starts_with("in part: ");
        match self.proof {
            "none" => Some("none"),
            "ruled out" => Some("ruled out"),
            _ if self.tests().any(|test| !is_inside(test)) && is_part => {
                Some("from outside, in part")
            }
            _ if self.tests().any(|test| !is_inside(test)) => Some("from outside"),
            _ => self.tests().next().map(|_| "only inside"),
        }
    }
}

/// Whether a text is an id: capital letters, a hyphen, two digits.
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(topic, number)| {
        let is_number = number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !topic.is_empty() && topic.bytes().all(|byte| byte.is_ascii_uppercase())
    })
}

fn is_inside(test: &str) -> bool {
    test.starts_with("inside: ")
}

/// The lines above a test: its comments and attributes, from the last to the first.
///
/// `socket::a` is in `tests/e2e/socket.rs`, `inside: lingua-x::rules/cells::a` in a file of that
/// crate whose path ends in `rules/cells.rs`.
fn find<'a>(workspace: &'a Workspace, test: &str) -> Option<Vec<&'a str>> {
    let (place, function) = test.rsplit_once("::")?;
    let (folder, file) = match place.strip_prefix("inside: ") {
        Some(place) => {
            place.split_once("::").map(|(name, file)| (format!("crates/{name}"), file))?
        }
        None => ("tests/e2e".to_owned(), place),
    };
    let end = format!("{file}.rs");
    let mut files = workspace.with_extension("rs");
    files.find_map(|(path, text)| {
        let is_here = path.starts_with(&folder) && path.ends_with(&end);
        let starts = [format!("fn {function}("), format!("fn {function}<")];
        let at = starts.iter().find_map(|start| text.find(start)).filter(|_| is_here)?;
        let above = text[..at].rsplit('\n').skip(1).map(str::trim_start);
        Some(above.take_while(|line| line.starts_with("///") || line.starts_with("#[")).collect())
    })
}

fn cites(comments: &[&str], id: &str) -> bool {
    comments.iter().any(|line| cited_ids(line).any(|cited| cited == id))
}

/// The ids in the comment of a line.
fn cited_ids(line: &str) -> impl Iterator<Item = &str> {
    let comment = line.split_once("//").map_or("", |(_, comment)| comment);
    let words = comment.split(|c: char| c != '-' && !c.is_ascii_alphanumeric());
    words.filter(|word| is_id(word))
}

/// Ids in comments that have a topic of the document but are not in it.
fn unknown_ids(workspace: &Workspace, ids: &BTreeSet<&str>) -> Vec<String> {
    let topic = |id: &str| id.split('-').next().map(str::to_owned);
    let topics: BTreeSet<_> = ids.iter().map(|id| topic(id)).collect();
    let mut findings = vec![];
    for (path, text) in workspace.with_extension("rs") {
        for (line, number) in text.lines().zip(1..) {
            let cited = cited_ids(line).filter(|id| topics.contains(&topic(id)));
            let unknown = cited.filter(|id| !ids.contains(id));
            let message = |id| format!("`{id}` is not in {DOCUMENT}");
            findings.extend(unknown.map(|id| finding(path, number, message(id))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace;

    const TEST: &str = "/// Boils: TEA-01, TEA-02.\n#[test]\nasync fn boils() {}\n";
    const INSIDE: &str = "pub fn pours<S>(s: S) {}\n";

    /// The findings without their paths.
    fn findings(proofs: &[(&str, &str)], counts: [usize; 5], test: &str) -> Vec<String> {
        let row = |(id, proof): &(&str, &str)| format!("| {id} | It `a::b`. | Tea | | {proof} |\n");
        let count = |(kind, count): (&str, usize)| format!("| {kind} | {count} |\n");
        let counts: String = KINDS.into_iter().zip(counts).map(count).collect();
        let text = proofs.iter().map(row).collect::<String>() + &counts;
        let files = [
            (DOCUMENT, text.as_str()),
            ("tests/e2e/kettle.rs", test),
            ("crates/pot/src/rules/cups.rs", INSIDE),
        ];
        let findings = check(&workspace(&files, vec![]));
        findings.iter().map(|found| found.splitn(3, ':').last().unwrap().trim().into()).collect()
    }

    #[test]
    fn a_document_whose_tests_exist_and_cite_it_is_right() {
        let proofs = [
            ("TEA-01", "`kettle::boils`, `inside: pot::rules/cups::pours`"),
            ("TEA-02", "in part: `kettle::boils`; not `twice`"),
            ("TEA-03", "`inside: pot::cups::pours`"),
            ("TEA-04", "none"),
            ("TEA-05", "ruled out"),
        ];
        assert!(findings(&proofs, [1; 5], TEST).is_empty());
    }

    #[test]
    fn tests_that_do_not_exist_are_found() {
        for test in ["kettle::boil", "pot::boils", "inside: pot::cups::boils", "inside: pot::pours"]
        {
            let proof = format!("`{test}`");
            let counts = if is_inside(test) { [0, 0, 1, 0, 0] } else { [1, 0, 0, 0, 0] };
            let found = findings(&[("TEA-01", proof.as_str())], counts, "");
            assert_eq!(found, [format!("no test `{test}`")]);
        }
    }

    #[test]
    fn ids_are_unique_and_cited_in_both_directions() {
        let twice = [("TEA-01", "none"), ("TEA-01", "none")];
        assert_eq!(findings(&twice, [0, 0, 0, 2, 0], ""), ["a second `TEA-01`"]);
        let uncited = [("TEA-01", "`kettle::boils`")];
        assert_eq!(
            findings(&uncited, [1, 0, 0, 0, 0], "#[test]\nfn boils() {}\n"),
            ["`kettle::boils` does not cite TEA-01"]
        );
        assert_eq!(
            findings(&uncited, [1, 0, 0, 0, 0], TEST),
            ["`TEA-02` is not in docs/requirements.md"]
        );
        assert!(findings(&twice[..1], [0, 0, 0, 1, 0], "// BCP-47, TEA-1, TEA-\n").is_empty());
    }

    #[test]
    fn every_requirement_has_a_proof_and_is_counted() {
        let unproved = findings(&[("TEA-01", "`kettle`")], [0; 5], "");
        assert_eq!(unproved, ["`TEA-01` has no proof; write `none` if there is none"]);
        let miscounted = findings(&[("TEA-01", "none")], [0; 5], "");
        assert_eq!(miscounted, ["the table of counts lacks `| none | 1 |`"]);
    }
}
