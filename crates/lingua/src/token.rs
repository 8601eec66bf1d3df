//! `lingua token`: secrets for nodes, clients and admins.

use clap::Subcommand;
use lingua_core::Tenant;
use lingua_server::auth::{TokenHash, new_token};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: its entry for the configuration goes to stdout, the secret to stderr.
    New {
        /// What the token allows.
        #[arg(long, value_parser = ["node", "client", "viewer", "admin"])]
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
    let tenant = tenant.map_or(String::new(), |tenant| format!("tenant = \"{tenant}\"\n"));
    // What `>> lingua.toml` stores must be the entry, and not the secret.
    println!("\n[[auth.tokens]]\nname = {name:?}\nrole = \"{role}\"\n{tenant}sha256 = \"{hash}\"");
    eprintln!(
        "\nThe entry above goes into the configuration: `lingua token new … >> lingua.toml`."
    );
    eprintln!("This is the token for LINGUA_TOKEN or --token. It is shown only once:\n\n{token}");
    Ok(())
}
