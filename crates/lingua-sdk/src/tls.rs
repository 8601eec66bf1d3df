//! Which certificates to trust at the other end of `https://` and `wss://`.
//!
//! Start at [`trust_system`] and [`trust_file`]. Invariant: there is no way to trust everybody.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The authorities of this machine, read once: there are many, and every node of a process may
/// need them.
static SYSTEM: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    // A certificate that cannot be read is left out; the handshake then fails with the reason.
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
    let (mut roots, mut pinned) = (RootCertStore::empty(), vec![]);
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        pinned.push(certificate.clone());
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    let mut config = Arc::unwrap_or_clone(trust(roots.clone()));
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let authorities = verifier.build().map_err(|error| wrong(&error))?;
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(PinnedCertificates { pinned, authorities }));
    Ok(Arc::new(config))
}

/// Trusts what the authorities signed, and also the certificates themselves, whatever names they
/// have: `openssl req -x509` makes a certificate for a server that calls itself an authority and
/// has no usable name. A server that proves to have its key is the one that the file means.
#[derive(Debug)]
struct PinnedCertificates {
    pinned: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for PinnedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned == certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Trusts no certificate: for connections without TLS.
pub(crate) fn trust_nobody() -> Arc<ClientConfig> {
    trust(RootCertStore::empty())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn trust(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider knows the usual versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// What to do if one end speaks TLS and the other does not.
pub(crate) fn mix_up(error: &(dyn Error + 'static), is_tls: bool) -> Option<&'static str> {
    let text = causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ");
    match is_tls {
        true if causes(error).any(|cause| {
            matches!(cause.downcast_ref(), Some(rustls::Error::InvalidMessage(_)))
        }) =>
        {
            Some("it does not speak TLS; use http:// or ws://")
        }
        // A server with TLS answers a plain request with an alert, or closes the connection.
        false
            if ["invalid HTTP version", "Handshake not finished", "httparse error"]
                .iter()
                .any(|sign| text.contains(sign)) =>
        {
            Some("its answer is not HTTP; if it speaks TLS, use https:// or wss://")
        }
        _ => None,
    }
}

/// An error and its causes, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| {
        // An IO error does not give the error inside it as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// Why the certificate of the other end is not trusted, if that is what went wrong.
pub(crate) fn distrust(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error).find_map(|cause| match cause.downcast_ref() {
        Some(why @ rustls::Error::InvalidCertificate(_)) => Some(why.to_string()),
        _ => None,
    })
}
