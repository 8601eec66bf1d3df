//! Which certificates to trust at the other end of `https://` and `wss://`.
//!
//! Start at [`Trust`]. Invariant: there is no way to trust everybody.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The authorities of this machine, read once: there are many, and every node of a process may
/// need them.
static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();

/// Which authorities may vouch for a scheduler.
#[derive(Debug, Clone, Default)]
pub(crate) enum Trust {
    /// Those of this machine.
    #[default]
    System,
    /// These and no others.
    These(Arc<ClientConfig>),
}

impl Trust {
    /// Only the authorities in a PEM file; otherwise, what is wrong with the file.
    pub(crate) fn file(path: &Path) -> Result<Self, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        if roots.is_empty() {
            return Err(wrong(&"there is no certificate in it"));
        }
        Ok(Self::These(config(roots)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        match self {
            Self::These(config) => Arc::clone(config),
            Self::System => Arc::clone(SYSTEM.get_or_init(|| {
                let mut roots = RootCertStore::empty();
                // What cannot be read vouches for nobody; the handshake will say so.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                config(roots)
            })),
        }
    }
}

/// A configuration for connections without TLS, which never use it.
pub(crate) fn unused() -> Arc<ClientConfig> {
    static NOBODY: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(NOBODY.get_or_init(|| config(RootCertStore::empty())))
}

fn config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Why the certificate of the other end is not trusted, if that is what went wrong.
pub(crate) fn distrust(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(why @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return Some(why.to_string());
        }
        // An IO error does not give the error inside it as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
