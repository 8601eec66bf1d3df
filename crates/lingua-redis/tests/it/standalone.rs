//! The store on one server passes the conformance suite.

use crate::servers::standalone;

lingua_store::conformance_suite!(standalone);
