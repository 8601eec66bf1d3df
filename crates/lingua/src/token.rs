//! `lingua token`: secrets for nodes, clients and admins.

use clap::Subcommand;
use lingua_core::Tenant;
use lingua_server::auth::{TokenHash, new_token};

use crate::config::expiry_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: its entry for the configuration goes to stdout, the secret to stderr.
    New {
        /// What the token allows.
        #[arg(long, value_parser = ["node", "client", "viewer", "admin"])]
        role: String,
        /// Whose token it is; tokens of one name are those of one caller [default: a random name].
        #[arg(long)]
        name: Option<String>,
        /// To whom belongs what the token makes.
        #[arg(long)]
        tenant: Option<Tenant>,
        /// From when it is refused, as in 2027-01-01T00:00:00Z [default: never].
        #[arg(long, value_parser = expiry)]
        expires: Option<String>,
    },
}

/// Accepts what the configuration accepts.
fn expiry(text: &str) -> Result<String, String> {
    let how = "write it as in 2027-01-01T00:00:00Z";
    expiry_ms(text).map(|_| text.to_owned()).ok_or_else(|| how.to_owned())
}

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::New { role, name, tenant, expires } = command;
    let name = name.unwrap_or_else(|| format!("{role}-{:08x}", rand::random::<u32>()));
    let token = new_token();
    let hash = TokenHash::of(&token);
    let tenant = tenant.map_or(String::new(), |tenant| format!("tenant = \"{tenant}\"\n"));
    let expires = expires.map_or(String::new(), |expires| format!("expires = \"{expires}\"\n"));
    // What `>> lingua.toml` stores must be the entry, and not the secret.
    println!("\n[[auth.tokens]]\nname = {name:?}\nrole = \"{role}\"");
    println!("{tenant}{expires}sha256 = \"{hash}\"");
    eprintln!(
        "\nThe entry above goes into the configuration: `lingua token new … >> lingua.toml`."
    );
    eprintln!("This is the token for LINGUA_TOKEN or --token. It is shown only once:\n\n{token}");
    Ok(())
}
