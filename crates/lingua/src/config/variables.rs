//! Warnings about environment variables that look like settings and are not.
//!
//! Start at [`ignored_variables`].

use super::Config;

/// A warning for each such variable of this process.
pub(crate) fn ignored_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    warnings(names, &crate::known_variables())
}

/// A variable that is ignored by mistake must not go unnoticed. It is no error, because others may
/// set variables for their own reasons: in Kubernetes a service called `lingua` puts `LINGUA_PORT`
/// into every pod.
fn warnings(names: impl IntoIterator<Item = String>, known: &[String]) -> Vec<String> {
    let sections = toml::Table::try_from(Config::default()).unwrap_or_default();
    let mut found = vec![];
    for name in names {
        let Some(rest) = name.strip_prefix("LINGUA_") else { continue };
        if rest.contains("__") || known.contains(&name) {
            continue;
        }
        let meant = sections.keys().find_map(|section| {
            let key = rest.strip_prefix(&section.to_uppercase())?.strip_prefix('_')?;
            Some(format!("LINGUA_{}__{key}", section.to_uppercase()))
        });
        found.push(match meant {
            Some(meant) => {
                format!("{name} is ignored; did you mean {meant}, with two underscores?")
            }
            None => format!("{name} is ignored; settings are called LINGUA_SECTION__KEY"),
        });
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_sets_nothing_causes_a_warning() {
        let known = ["LINGUA_URL".to_owned()];
        let names =
            ["LINGUA_URL", "LINGUA_SERVER__LISTEN", "PATH", "LINGUA_SERVER_LISTEN", "LINGUA_X"];
        let found = warnings(names.map(str::to_owned), &known);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("did you mean LINGUA_SERVER__LISTEN"), "{found:?}");
        assert!(found[1].starts_with("LINGUA_X is ignored"), "{found:?}");
    }
}
