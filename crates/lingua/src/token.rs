//! `lingua token`: secrets for nodes, clients and admins.

use clap::{Subcommand, ValueEnum};
use lingua_server::auth::{TokenHash, new_token};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print its entry for the configuration.
    New {
        /// What the token allows.
        #[arg(long)]
        role: RoleName,
        /// A name, to tell tokens apart.
        #[arg(long, default_value = "unnamed")]
        name: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleName {
    Node,
    Client,
    Admin,
}

impl RoleName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }
}

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::New { role, name } = command;
    let token = new_token();
    let (hash, role) = (TokenHash::of(&token), role.as_str());
    println!("{token}");
    eprintln!("\nThe token is shown only once. Add its hash to the configuration:\n");
    eprintln!("[[auth.tokens]]\nname = {name:?}\nrole = \"{role}\"\nsha256 = \"{hash}\"");
    Ok(())
}
