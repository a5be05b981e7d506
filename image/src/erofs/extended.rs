//! Extended attributes as the format has them: a header behind the inode, then numbers of attributes that inodes share,
//! then the inode's own.
//!
//! An attribute is a length of its name, a number for the name's prefix, the length of the value, name and value,
//! padded to [`UNIT_BYTES`]. All lengths come from the image, so each is checked where it is used; how many attributes
//! are looked at is bounded by the inode's own count of units, which is 16 bits wide.

use alloc::vec::Vec;

use super::read::{Damage, ReadError};
use crate::bytes::{slice, u16_at, u32_at};
use crate::tree::ExtendedAttribute;

/// Bytes of the header, of which one says how many are shared.
const HEADER_BYTES: u64 = 12;
const SHARED_COUNT_OFFSET: usize = 4;
/// What everything is padded to, and what the count in an inode counts behind the header.
const UNIT_BYTES: u64 = 4;
/// Bytes of an attribute before its name.
const ENTRY_BYTES: u64 = 4;
/// Longest name, with its prefix (Linux `XATTR_NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Most bytes of names and values of one file that are written.
pub const FILE_BYTES_MAX: usize = 64 * 1024;

/// Prefixes of names with their numbers. Access control lists have prefixes of their own, which are not written.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];

const DAMAGED: ReadError = ReadError::Corrupt(Damage::ExtendedAttributes);

/// Whether an image holds an attribute of this name.
pub fn can_hold(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.contains(&0) && split(name).is_some_and(|(_, rest)| !rest.is_empty())
}

/// The prefix's number, and the rest.
fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(prefix, number)| Some((*number, name.strip_prefix(*prefix)?)))
}

/// Bytes behind an inode whose count is this.
pub(super) fn length_of(count: u16) -> u64 {
    match u64::from(count) {
        0 => 0,
        count => HEADER_BYTES + (count - 1) * UNIT_BYTES,
    }
}

/// The count of an inode that has so many bytes of attributes behind it.
pub(super) fn count_of(length_bytes: u64) -> u16 {
    // At most 64 KiB and four bytes for each of at most as many attributes: the writer's limit keeps it in 16 bits.
    length_bytes.checked_sub(HEADER_BYTES).map_or(0, |rest| (rest / UNIT_BYTES + 1) as u16)
}

/// Those that an image holds: by name as it can, and while they fit together.
fn held(all: &[ExtendedAttribute]) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
    let mut room_bytes = FILE_BYTES_MAX;
    all.iter().filter(|(name, _)| can_hold(name)).filter_map(move |(name, value)| {
        room_bytes = room_bytes.checked_sub(name.len() + value.len())?;
        // A value of the whole room would not fit into its length's 16 bits; names take more than that one byte.
        split(name).map(|(prefix, rest)| (prefix, rest, value.as_slice()))
    })
}

fn padded(name: &[u8], value: &[u8]) -> u64 {
    (ENTRY_BYTES + (name.len() + value.len()) as u64).next_multiple_of(UNIT_BYTES)
}

/// Bytes that they take behind an inode.
pub(super) fn length_bytes(all: &[ExtendedAttribute]) -> u64 {
    match held(all).map(|(_, name, value)| padded(name, value)).sum() {
        0 => 0,
        entries => HEADER_BYTES + entries,
    }
}

/// What stands behind an inode.
pub(super) fn bytes(all: &[ExtendedAttribute]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (prefix, name, value) in held(all) {
        if bytes.is_empty() {
            bytes.resize(HEADER_BYTES as usize, 0);
        }
        bytes.extend_from_slice(&[name.len() as u8, prefix]);
        bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES as usize), 0);
    }
    bytes
}

/// A name of an attribute: its prefix and the rest; and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    prefix: &'static [u8],
    rest: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Attribute<'_> {
    /// Whether this is its whole name.
    pub fn is_named(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.prefix).is_some_and(|rest| rest == self.rest)
    }

    /// The parts of its name.
    pub fn name(&self) -> [&[u8]; 2] {
        [self.prefix, self.rest]
    }
}

/// The attributes of an inode, the shared ones first.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    image: &'a [u8],
    /// Where the next number of a shared one is, and how many are left.
    shared_at: u64,
    shared_left: u8,
    shared_start: u64,
    own_at: u64,
    end: u64,
    is_damaged: bool,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(image: &'a [u8], start: u64, count: u16, shared_start: u64) -> Self {
        let mut all = Self {
            image,
            shared_at: start,
            shared_left: 0,
            shared_start,
            own_at: start,
            end: start,
            is_damaged: false,
        };
        if count == 0 {
            return all;
        }
        let length = length_of(count);
        let Some(area) = slice(image, start, length) else { return Self { is_damaged: true, end: u64::MAX, ..all } };
        all.shared_left = area[SHARED_COUNT_OFFSET];
        all.shared_at = start + HEADER_BYTES;
        all.own_at = all.shared_at + u64::from(all.shared_left) * UNIT_BYTES;
        all.end = start + length;
        all
    }

    /// The one at this place, and how long it is; `None` for a prefix that is not known.
    fn at(&self, place: u64) -> Result<(Option<Attribute<'a>>, u64), ReadError> {
        let entry = slice(self.image, place, ENTRY_BYTES).ok_or(DAMAGED)?;
        let name_bytes = u64::from(entry[0]);
        let value_bytes = u64::from(u16_at(entry, 2).ok_or(DAMAGED)?);
        let rest = slice(self.image, place + ENTRY_BYTES, name_bytes).ok_or(DAMAGED)?;
        let value = slice(self.image, place + ENTRY_BYTES + name_bytes, value_bytes).ok_or(DAMAGED)?;
        let prefix = PREFIXES.iter().find(|(_, number)| *number == entry[1]).map(|(prefix, _)| *prefix);
        let is_name = !rest.is_empty() && !rest.contains(&0);
        let attribute = prefix.filter(|_| is_name).map(|prefix| Attribute { prefix, rest, value });
        Ok((attribute, padded(rest, value)))
    }

    /// The next, known or not.
    fn step(&mut self) -> Result<Option<Attribute<'a>>, ReadError> {
        if self.shared_left > 0 {
            let number = slice(self.image, self.shared_at, UNIT_BYTES).and_then(|bytes| u32_at(bytes, 0));
            self.shared_left -= 1;
            self.shared_at += UNIT_BYTES;
            let place = self.shared_start + u64::from(number.ok_or(DAMAGED)?) * UNIT_BYTES;
            return self.at(place).map(|(attribute, _)| attribute);
        }
        let (attribute, length) = self.at(self.own_at)?;
        self.own_at += length;
        if self.own_at > self.end { Err(DAMAGED) } else { Ok(attribute) }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_damaged && (self.shared_left > 0 || self.own_at < self.end) {
            match self.step() {
                Ok(None) => {}
                Ok(Some(attribute)) => return Some(Ok(attribute)),
                Err(error) => {
                    (self.shared_left, self.own_at) = (0, self.end);
                    return Some(Err(error));
                }
            }
        }
        let was_damaged = core::mem::take(&mut self.is_damaged);
        self.own_at = self.end;
        was_damaged.then_some(Err(DAMAGED))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::{FILE_BYTES_MAX, can_hold, length_bytes};
    use crate::erofs::check::check;
    use crate::erofs::read::{Damage, Image, ReadError};
    use crate::erofs::write::Layout;
    use crate::tree::{Attributes, Content, ExtendedAttribute, LastLink, Tree};

    fn attribute(name: &str, value: &[u8]) -> ExtendedAttribute {
        (name.into(), value.to_vec())
    }

    fn read(image: &Image<'_>, path: &str) -> Vec<ExtendedAttribute> {
        let inode = image.resolve(path.as_bytes(), LastLink::Keep).expect("there");
        let all = image.extended(&inode).map(|it| it.expect("sound"));
        all.map(|it| (it.name().concat(), it.value.to_vec())).collect()
    }

    /// A file with attributes longer than a block, a directory and a link whose own data stand behind theirs.
    fn written() -> (Vec<u8>, [Vec<ExtendedAttribute>; 3]) {
        let plain = Attributes::root_owned(0o755);
        let mut tree = Tree::new(plain);
        let root = tree.root();
        let all = [
            vec![attribute("user.empty", b""), attribute("security.capability", &[1; 20])],
            vec![attribute("trusted.long", &vec![7; 20_000]), attribute("user.x", b"odd")],
            vec![attribute("security.selinux", b"label")],
        ];
        let link = tree.add(root, b"link", plain, Content::Symlink(vec![b't'; 4000])).expect("added");
        let file = tree.add(root, b"file", plain, Content::File(vec![5; 5000])).expect("added");
        tree.add(root, b"behind", plain, Content::File(vec![6; 3])).expect("added");
        for (node, attributes) in [root, file, link].into_iter().zip(&all) {
            tree.set_extended(node, attributes.clone());
        }
        let mut bytes = Vec::new();
        Layout::new(&tree).expect("small").write(&mut bytes).expect("written");
        (bytes, all)
    }

    #[test]
    fn attributes_come_back_and_move_nothing_else() {
        let (bytes, [of_root, of_file, of_link]) = written();
        let image = Image::open(&bytes).expect("an image");
        check(&image).expect("sound");
        assert_eq!(read(&image, "/"), of_root);
        assert_eq!(read(&image, "file"), of_file);
        assert_eq!(read(&image, "link"), of_link);
        assert_eq!(read(&image, "behind"), []);
        let of = |path: &str| image.resolve(path.as_bytes(), LastLink::Keep).expect("there");
        assert_eq!(image.read_link(&of("link")).expect("a link"), [b't'; 4000]);
        let mut contents = [0; 4];
        assert_eq!((image.read_at(&of("behind"), 0, &mut contents), contents), (3, [6, 6, 6, 0]));
        assert!(of("file").has_extended() && !of("behind").has_extended());
    }

    #[test]
    fn lengths_that_lead_out_are_damage() {
        let (mut bytes, _) = written();
        let number = Image::open(&bytes).expect("an image").resolve(b"link", LastLink::Keep).expect("there").number.0;
        let header = number as usize * 32 + 64;
        // More shared ones than there is room for; then a value longer than the area.
        for (offset, value) in [(4, 255), (15, 255)] {
            let before = core::mem::replace(&mut bytes[header + offset], value);
            let image = Image::open(&bytes).expect("an image");
            let damaged = Err(ReadError::Corrupt(Damage::ExtendedAttributes));
            assert_eq!(check(&image).map(|_| ()), damaged, "{offset}");
            bytes[header + offset] = before;
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        for name in ["user.", "user", "system.posix_acl_access", "other.x", "user.a\0b", ""] {
            assert!(!can_hold(name.as_bytes()), "{name}");
        }
        assert!(can_hold(&[b"user.".as_slice(), &[b'n'; 250]].concat()));
        assert!(!can_hold(&[b"user.".as_slice(), &[b'n'; 251]].concat()));
        let fits = attribute("user.a", &vec![0; FILE_BYTES_MAX - 6]);
        let other = attribute("user.b", b"1");
        assert_eq!(length_bytes(core::slice::from_ref(&other)), 12 + 8);
        assert_eq!(length_bytes(&[fits.clone(), other]), length_bytes(&[fits]));
    }
}
