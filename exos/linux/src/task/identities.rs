//! The identity of a thread: users, groups, capabilities.

use alloc::vec::Vec;

use exos::fs::permission::{Credentials, Owner};
use exos::task::capability::{Capabilities, Capability};

/// User and group identities and what they may do; one user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Real, effective and saved user, and the user for files.
    pub uid: [u32; 4],
    /// Real, effective and saved group, and the group for files.
    pub gid: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// What it may do besides.
    pub capabilities: Capabilities,
    /// `PR_SET_NO_NEW_PRIVS`: only kept, as executing a program gives nothing that user 0 does not have.
    pub has_no_new_privileges: bool,
}

impl Identities {
    /// What files are checked with.
    #[must_use]
    pub fn for_files(&self) -> Credentials {
        let capabilities = self.capabilities.effective;
        Credentials { uid: self.uid[3], gid: self.gid[3], groups: self.groups.clone(), capabilities }
    }

    /// Who owns what it makes.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner { uid: self.uid[3], gid: self.gid[3] }
    }

    /// What `access(2)` checks files with: the real identity.
    #[must_use]
    pub fn for_access(&self) -> Credentials {
        let capabilities = self.capabilities.of_real_user(self.uid[0]);
        Credentials { uid: self.uid[0], gid: self.gid[0], groups: self.groups.clone(), capabilities }
    }

    /// Whose rights it uses: effective users and groups, and those for files.
    #[must_use]
    pub fn acts_as(&self) -> [u32; 4] {
        [self.uid[1], self.uid[3], self.gid[1], self.gid[3]]
    }

    /// Whether it has a capability now.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.effective.contains(capability)
    }
}
