//! The selection policies and their names (`selection.policy`).

use std::fmt;
use std::str::FromStr;

/// How a node is chosen among those that can do the job and have a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// `balanced`: least expected delay, a little dearer on more flexible nodes. Nodes whose costs
    /// are within 30 % of the best node's count as equally fast; random among equals, so that a
    /// session does not settle on one node.
    #[default]
    Balanced,
    /// `sample`: the least used of `k` random nodes; random among equals.
    Sample {
        /// How many nodes it looks at (`selection.sample_k`).
        k: u8,
    },
    /// `least_loaded`: least used in proportion to its slots; random among equals.
    LeastLoaded,
    /// `random`: any node.
    Random,
}

impl Policy {
    /// How many nodes [`Policy::Sample`] looks at by default.
    pub const SAMPLE_K: u8 = 20;

    /// The policies, each with its default parameters.
    pub const ALL: [Self; 4] =
        [Self::Balanced, Self::Sample { k: Self::SAMPLE_K }, Self::LeastLoaded, Self::Random];

    /// The name in the configuration and in explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Sample { .. } => "sample",
            Self::LeastLoaded => "least_loaded",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Policy {
    type Err = &'static str;

    /// Reads a name; `sample` gets its default `k`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == name);
        found.ok_or("use one of balanced, sample, least_loaded, random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_print_as_the_names_of_the_configuration() {
        let names = Policy::ALL.map(|policy| policy.to_string());
        assert_eq!(names, ["balanced", "sample", "least_loaded", "random"]);
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let unknown = "leastloaded".parse::<Policy>().unwrap_err();
        assert!(unknown.contains("least_loaded"), "{unknown}");
    }
}
