//! The server's certificate and key.
//!
//! Start at [`Tls::from_files`]. Invariant: a [`Tls`] is usable; a key that does not match its
//! certificate is refused here, not at the first connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate chain with its private key.
#[derive(Debug, Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why a certificate or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {what} from {}: {why}; give a PEM file", path.display())]
    Unreadable { what: &'static str, path: PathBuf, why: pem::Error },
    /// Certificate and key do not match, or are of an unsupported kind.
    #[error("the certificate and the key cannot be used: {0}; do they belong together?")]
    Unusable(rustls::Error),
}

impl Tls {
    /// Reads a certificate, followed by its intermediate certificates, and its key.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |why| TlsError::Unreadable { what, path, why }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(
                |chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(unreadable("a certificate", certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable("a private key", key))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}
