use super::*;
use crate::script;

/// The names in capitals of all scripts and their shared parts.
fn names() -> Vec<(&'static str, &'static str)> {
    let is_name = |token: &str| {
        token.len() > 1
            && token.starts_with(|c: char| c.is_ascii_uppercase())
            && !token.contains(|c: char| c.is_ascii_lowercase())
    };
    let mut names = vec![];
    for (script, parts) in script::texts() {
        let lines = parts.into_iter().flat_map(str::lines);
        let used = lines.flat_map(tokens).filter(|token| is_name(token));
        names.extend(used.map(|name| (script, name)));
    }
    names
}

fn constants() -> impl Iterator<Item = &'static str> {
    NUMBERS.iter().map(|(name, _)| *name).chain(TEXTS.iter().map(|(name, _)| *name))
}

#[test]
fn every_name_in_capitals_is_a_constant_or_an_argument() {
    for (script, name) in names() {
        let known = constants().any(|known| known == name);
        assert!(known || ["KEYS", "ARGV"].contains(&name), "{script}.lua uses {name}");
    }
}

#[test]
fn every_constant_is_used_by_a_script() {
    let names = names();
    for name in constants() {
        assert!(names.iter().any(|(_, used)| *used == name), "no script uses {name}");
    }
}

#[test]
fn values_replace_names_outside_of_texts_and_comments() {
    let script = "local x = READY + READY_AT -- READY\ncall('READY', OFFLINE)";
    assert_eq!(inline(script), "local x = 0 + READY_AT \ncall('READY', 4)\n");
}

#[test]
fn a_job_that_has_ended_has_one_of_the_last_states() {
    assert!(JobState::ALL[first_end()..].iter().all(|state| state.is_terminal()));
}
