//! Environment variables that set nothing.
//!
//! Start at [`strays_here`].

use super::Config;

/// Those of this process.
pub(crate) fn strays_here() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    stray_variables(names, &crate::known_variables())
}

/// Variables that look like settings and are none, each with what to do: a typing mistake must not
/// be a silent default. They are no errors, because whoever runs this process may set variables for
/// reasons of its own (a service called `lingua` gets `LINGUA_PORT` in every pod beside it).
fn stray_variables(names: impl IntoIterator<Item = String>, known: &[String]) -> Vec<String> {
    let sections = toml::Table::try_from(Config::default()).unwrap_or_default();
    let mut strays = vec![];
    for name in names {
        let Some(rest) = name.strip_prefix("LINGUA_") else { continue };
        if rest.contains("__") || known.contains(&name) {
            continue;
        }
        let meant = sections.keys().find_map(|section| {
            let key = rest.strip_prefix(&section.to_uppercase())?.strip_prefix('_')?;
            Some(format!("LINGUA_{}__{key}", section.to_uppercase()))
        });
        strays.push(match meant {
            Some(meant) => {
                format!("{name} is ignored; did you mean {meant}, with two underscores?")
            }
            None => format!("{name} is ignored; settings are called LINGUA_SECTION__KEY"),
        });
    }
    strays.sort_unstable();
    strays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_sets_nothing_is_named() {
        let known = ["LINGUA_URL".to_owned()];
        let names =
            ["LINGUA_URL", "LINGUA_SERVER__LISTEN", "PATH", "LINGUA_SERVER_LISTEN", "LINGUA_X"];
        let strays = stray_variables(names.map(str::to_owned), &known);
        assert_eq!(strays.len(), 2, "{strays:?}");
        assert!(strays[0].contains("did you mean LINGUA_SERVER__LISTEN"), "{strays:?}");
        assert!(strays[1].starts_with("LINGUA_X is ignored"), "{strays:?}");
    }
}
