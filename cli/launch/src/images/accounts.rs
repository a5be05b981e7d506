//! An image's user: `/etc/passwd` and `/etc/group` of the image, and what `USER` or `-u` says.
//!
//! Pure. The rules are those of podman: a name has to be in the accounts; a number need not, and has group 0 then;
//! where a group is given there are no further groups; without one the further groups are those that list the user's
//! name. The group itself is among them, unless nobody says who the user is.

use crate::images::errors::{ImageError, shown};

/// Most of a file of accounts that is read.
pub(crate) const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;
/// Most further groups, as Linux has it.
const GROUP_COUNT_MAX: usize = 65_536;

/// A user of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Home directory, where the accounts name one.
    pub home: Option<Vec<u8>>,
}

/// The accounts of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: Vec<u8>,
    /// `/etc/group`.
    pub group: Vec<u8>,
}

struct User<'a> {
    name: &'a [u8],
    uid: u32,
    gid: u32,
    home: &'a [u8],
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    bytes.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':').collect())
}

/// An identity's number: at most 2^31 - 1, so that no language's signed integers make another of it.
fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u32>().ok().filter(|value| is_number && *value <= i32::MAX as u32)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Accounts {
    fn users(&self) -> impl Iterator<Item = User<'_>> {
        lines(&self.passwd).filter_map(|fields| match fields[..] {
            [name, _, uid, gid, _, home, ..] => Some(User { name, uid: number(uid)?, gid: number(gid)?, home }),
            _ => None,
        })
    }

    /// Number and members of each group.
    fn groups(&self) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
        lines(&self.group).filter_map(|fields| match fields[..] {
            [name, _, gid, members, ..] => Some((name, number(gid)?, members)),
            _ => None,
        })
    }

    /// The identity that `USER`, `USER:GROUP` or an empty text (user 0) stands for.
    ///
    /// # Errors
    /// `User`: an unknown name, or a number beyond what there is.
    pub fn identity(&self, text: &str) -> Result<Identity, ImageError> {
        let (user_text, group_text) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
            None => (text, None),
        };
        let user_text = if user_text.is_empty() { "0" } else { user_text };
        let found = self.users().find(|user| user.name == user_text.as_bytes());
        let found = match (found, number(user_text.as_bytes())) {
            (None, Some(uid)) => self.users().find(|user| user.uid == uid),
            (found, _) => found,
        };
        let uid = match (&found, number(user_text.as_bytes())) {
            (Some(user), _) => user.uid,
            (None, Some(uid)) => uid,
            (None, None) => return Err(unknown("user", user_text, "/etc/passwd")),
        };
        let home = found.as_ref().map(|user| user.home.to_vec()).filter(|home| home.starts_with(b"/"));
        if let Some(group) = group_text {
            let gid = self.group_number(group)?;
            return Ok(Identity { uid, gid, groups: vec![gid], home });
        }
        let gid = found.as_ref().map_or(0, |user| user.gid);
        let name = found.map(|user| user.name);
        let has_member = |members: &[u8]| members.split(|byte| *byte == b',').any(|member| Some(member) == name);
        let mut groups: Vec<u32> =
            self.groups().filter(|(_, _, members)| has_member(members)).map(|(_, gid, _)| gid).collect();
        groups.extend(Some(gid).filter(|_| !text.is_empty()));
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(GROUP_COUNT_MAX);
        Ok(Identity { uid, gid, groups, home })
    }

    /// The number of a group, by number or name.
    ///
    /// # Errors
    /// `User`: an unknown name.
    pub fn group_number(&self, text: &str) -> Result<u32, ImageError> {
        let found = self.groups().find(|(name, ..)| *name == text.as_bytes()).map(|(_, gid, _)| gid);
        found.or_else(|| number(text.as_bytes())).ok_or_else(|| unknown("group", text, "/etc/group"))
    }
}

fn unknown(what: &str, text: &str, file: &str) -> ImageError {
    let text_shown = shown(text.as_bytes());
    ImageError::User(if is_number(text) {
        format!("{what} {text_shown}: more than 2147483647")
    } else {
        format!("{what} {text_shown}: not in the root's {file}; name one that is there, or a number")
    })
}

#[cfg(test)]
mod tests {
    use super::{Accounts, Identity};

    fn accounts() -> Accounts {
        Accounts {
            passwd: b"root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:44::/var/www:/bin/sh\n7:x:9:9::/seven:/x\n"
                .to_vec(),
            group: b"root:x:0:\nweb:x:44:\nlog:x:4:web,root\nssl:x:110:other,web\nssl2:x:110:web\nbad:x:y:web".to_vec(),
        }
    }

    fn identity(uid: u32, gid: u32, groups: &[u32], home: Option<&[u8]>) -> Identity {
        Identity { uid, gid, groups: groups.to_vec(), home: home.map(<[u8]>::to_vec) }
    }

    #[test]
    fn users_are_found_as_podman_finds_them() {
        let www: Option<&[u8]> = Some(b"/var/www");
        for (text, expected) in [
            ("", identity(0, 0, &[4], Some(b"/root"))),
            ("root", identity(0, 0, &[0, 4], Some(b"/root"))),
            ("web", identity(33, 44, &[4, 44, 110], www)),
            ("33", identity(33, 44, &[4, 44, 110], www)),
            ("web:", identity(33, 44, &[4, 44, 110], www)),
            ("web:log", identity(33, 4, &[4], www)),
            ("web:5", identity(33, 5, &[5], www)),
            (":log", identity(0, 4, &[4], Some(b"/root"))),
            ("1234", identity(1234, 0, &[0], None)),
            ("1234:77", identity(1234, 77, &[77], None)),
            // A name of digits is a name first.
            ("7", identity(9, 9, &[9], Some(b"/seven"))),
        ] {
            assert_eq!(accounts().identity(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn who_is_not_there_is_named() {
        for (text, part) in [
            ("nobody", "user nobody: not in"),
            ("web:staff", "group staff: not in"),
            ("4294967296", "more than"),
            ("2147483648", "more than"),
            ("0:4294967295", "more than"),
            ("-1", "not in"),
        ] {
            let error = accounts().identity(text).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(Accounts::default().identity("").expect("root"), identity(0, 0, &[], None));
    }
}
