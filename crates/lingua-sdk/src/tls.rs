//! Which certificates to trust at the other end of `https://` and `wss://`.
//!
//! Start at [`trust_system`] and [`trust_file`]. Invariant: there is no way to trust everybody.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The authorities of this machine, read once: there are many, and every node of a process may
/// need them.
static SYSTEM: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    // What cannot be read vouches for nobody; the handshake will say so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    trust(roots)
});

/// Trusts the authorities of this machine.
pub(crate) fn trust_system() -> Arc<ClientConfig> {
    Arc::clone(&SYSTEM)
}

/// Trusts only the authorities in a PEM file; otherwise, what is wrong with the file.
pub(crate) fn trust_file(path: &Path) -> Result<Arc<ClientConfig>, String> {
    let wrong = |why: &dyn Display| format!("{}: {why}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(trust(roots))
}

/// Trusts nobody: for connections without TLS, which never ask.
pub(crate) fn trust_nobody() -> Arc<ClientConfig> {
    trust(RootCertStore::empty())
}

fn trust(roots: RootCertStore) -> Arc<ClientConfig> {
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
