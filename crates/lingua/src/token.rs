//! `lingua token`: secrets for nodes, clients and admins.

use clap::Subcommand;
use lingua_core::Tenant;
use lingua_server::auth::{TokenHash, new_token};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print its entry for the configuration.
    New {
        /// What the token allows.
        #[arg(long, value_parser = ["node", "client", "admin"])]
        role: String,
        /// A name, to tell tokens apart.
        #[arg(long, default_value = "unnamed")]
        name: String,
        /// To whom belongs what the token makes.
        #[arg(long)]
        tenant: Option<Tenant>,
    },
}

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::New { role, name, tenant } = command;
    let token = new_token();
    let hash = TokenHash::of(&token);
    println!("{token}");
    eprintln!("\nThe token is shown only once. Add its hash to the configuration:\n");
    eprintln!("[[auth.tokens]]\nname = {name:?}\nrole = \"{role}\"");
    if let Some(tenant) = tenant {
        eprintln!("tenant = \"{tenant}\"");
    }
    eprintln!("sha256 = \"{hash}\"");
    Ok(())
}
