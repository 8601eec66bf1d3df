//! The keys that sign grants, in the configuration.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lingua_server::auth::GrantKey;
use serde::{Deserialize, Serialize};

use super::BadConfig;

/// Longest file that settings name.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyConfig {
    pub(crate) id: String,
    /// To whom belongs what its grants make: `default` if absent.
    tenant: Option<String>,
    /// A secret: HS256.
    pub(crate) secret_file: Option<PathBuf>,
    /// An Ed25519 public key (PEM): EdDSA.
    public_key_file: Option<PathBuf>,
}

/// The bytes of files, or why one cannot be used, and whether it is a secret.
pub(crate) type Files = BTreeMap<PathBuf, (Result<Vec<u8>, String>, bool)>;

impl KeyConfig {
    /// Reads its file.
    pub(crate) fn read(&self, files: &mut Files) {
        for (path, is_secret) in [(&self.secret_file, true), (&self.public_key_file, false)] {
            if let Some(path) = path {
                files.insert(path.clone(), (read_file(path, is_secret), is_secret));
            }
        }
    }

    pub(crate) fn key(&self, files: &Files) -> Result<GrantKey, BadConfig> {
        let id = &self.id;
        let bad = |what: String| BadConfig(format!("key {id:?}: {what}"));
        if id.is_empty() || id.len() > 128 {
            return Err(bad("its id must have 1 to 128 bytes".to_owned()));
        }
        let tenant = self.tenant.as_deref().unwrap_or("default");
        let tenant = tenant.parse().map_err(|error| bad(format!("tenant {tenant:?}: {error}")))?;
        let bytes = |path: &PathBuf| match files.get(path) {
            Some((Ok(bytes), _)) => Ok(bytes.clone()),
            Some((Err(error), _)) => Err(bad(error.clone())),
            None => Err(bad(format!("{} was not read", path.display()))),
        };
        let key = match (&self.secret_file, &self.public_key_file) {
            (Some(path), None) => GrantKey::from_secret(id, tenant, &bytes(path)?),
            (None, Some(path)) => GrantKey::from_public_pem(id, tenant, &bytes(path)?),
            _ => {
                let what = "set secret_file (HS256) or public_key_file (EdDSA), and not both";
                return Err(bad(what.to_owned()));
            }
        };
        key.map_err(|error| bad(error.to_string()))
    }
}

/// Reads a file. A secret must not be readable by everybody.
pub(crate) fn read_file(path: &Path, is_secret: bool) -> Result<Vec<u8>, String> {
    let name = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {name}: {error}");
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if is_secret && mode & 0o004 != 0 {
        return Err(format!("everybody can read {name}; 'chmod 600 {name}'"));
    }
    let mut bytes = vec![];
    match file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)? {
        count if count as u64 > FILE_BYTES_MAX => {
            Err(format!("{name} is longer than {FILE_BYTES_MAX} bytes"))
        }
        _ => Ok(bytes),
    }
}
