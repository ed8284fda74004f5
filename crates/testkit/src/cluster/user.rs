//! Who a client is to the API server.

use kube::config::AuthInfo;

/// Whoever is not the administrator has the rights that a test gives them and no other.
///
/// The administrator speaks for the others (impersonation): the API server then asks what *they* may do, and no certificate or
/// token has to be made for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Admin,
    Named(String),
    ServiceAccount { namespace: String, name: String },
}

impl User {
    pub fn named(name: &str) -> Self {
        Self::Named(name.to_owned())
    }

    /// The name that roles are bound to.
    pub fn name(&self) -> String {
        match self {
            Self::Admin => "admin".to_owned(),
            Self::Named(name) => name.clone(),
            Self::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
        }
    }

    /// A user has the groups that the API server itself would find for one who signs in. It adds `system:authenticated` to
    /// those that are named.
    pub(super) fn impersonate(&self, access: &mut AuthInfo) {
        access.impersonate_groups = match self {
            Self::Admin => return,
            Self::Named(_) => None,
            Self::ServiceAccount { namespace, .. } => Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ]),
        };
        access.impersonate = Some(self.name());
    }
}
