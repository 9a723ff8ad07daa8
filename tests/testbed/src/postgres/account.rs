//! Whom the server runs as: PostgreSQL refuses root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::PostgresError;

/// Whom the server's programs run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// The user who runs the tests.
    Ours,
    /// Another user, because the tests run as root.
    Other {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

impl Account {
    /// Ours, unless that is root.
    pub(super) fn find() -> Result<Self, PostgresError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Ours);
        }
        let path = Path::new("/etc/passwd");
        let accounts = std::fs::read_to_string(path)
            .map_err(|source| PostgresError::Folder { path: path.to_path_buf(), source })?;
        in_place_of_root(&accounts).ok_or(PostgresError::NoAccount)
    }

    /// Lets this command run as the account.
    pub(super) fn give(self, command: &mut Command) {
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }

    /// Makes the account the owner of this folder.
    pub(super) fn own(self, folder: &Path) -> std::io::Result<()> {
        match self {
            Self::Ours => Ok(()),
            Self::Other { uid, gid } => std::os::unix::fs::chown(folder, Some(uid), Some(gid)),
        }
    }
}

fn in_place_of_root(accounts: &str) -> Option<Account> {
    ["postgres", "nobody"].into_iter().find_map(|wanted| {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            (name == wanted && uid != 0).then_some(Account::Other { uid, gid })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_replaced_by_the_postgres_account_or_the_overflow_account() {
        let root = "root:x:0:0:root:/root:/bin/bash\n";
        let overflow = "nobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n";
        let postgres = "postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(in_place_of_root(root), None);
        assert_eq!(in_place_of_root(&format!("{root}{overflow}")), Some(Account::Other { uid: 65534, gid: 65533 }));
        let all = format!("{root}{overflow}{postgres}");
        assert_eq!(in_place_of_root(&all), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(in_place_of_root("postgres:x:0:0::/:/bin/sh"), None, "another name for root is no way out");
    }
}
