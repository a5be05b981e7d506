//! Tap interfaces of the host that this user may use.
//!
//! The tool makes none: that takes rights over the host's network which no part of Aegis wants. An administrator makes
//! one for a user once; the errors here say how.

use std::fs;
use std::path::Path;

use aegis_launch::errors::Error;

/// Where Linux shows its interfaces, and the device by which a tap is opened.
const INTERFACES: &str = "/sys/class/net";
const TUN: &str = "/dev/net/tun";
/// In `tun_flags`: it is a tap (`IFF_TAP`), not a tun.
const IFF_TAP: u32 = 2;

/// What is known of a tap interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tap {
    /// The user it belongs to; `None`: only root may use it.
    owner: Option<u32>,
    /// Something has it open.
    is_open: bool,
}

/// The interface of that name, or the first that is this user's and free.
///
/// # Errors
/// There is none, or it cannot be used.
pub(crate) fn find(name: Option<&str>) -> Result<String, Error> {
    let user = rustix::process::geteuid().as_raw();
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(TUN) {
        return Err(Error::Usage(format!("--network tap: {TUN}: {error}; use --network user, which needs no rights")));
    }
    choose(Path::new(INTERFACES), name, user).map_err(|why| Error::Usage(format!("--network tap: {why}")))
}

fn choose(interfaces: &Path, name: Option<&str>, user: u32) -> Result<String, String> {
    let remedy = |name: &str| {
        format!("`sudo ip tuntap add dev {name} mode tap user {user} && sudo ip link set {name} up` makes one")
    };
    let Some(name) = name else {
        let mut names: Vec<String> = fs::read_dir(interfaces)
            .map(|list| list.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        names.sort_unstable();
        let is_mine =
            |name: &String| tap_at(&interfaces.join(name)).is_some_and(|tap| tap.owner == Some(user) && !tap.is_open);
        return names
            .into_iter()
            .find(is_mine)
            .ok_or_else(|| format!("no free tap interface of yours; {}", remedy("tap0")));
    };
    let place = interfaces.join(name);
    if !place.exists() {
        return Err(format!("no interface {name}; {}", remedy(name)));
    }
    let tap = tap_at(&place).ok_or_else(|| format!("{name} is no tap interface; {}", remedy("tap0")))?;
    if user != 0 && tap.owner != Some(user) {
        return Err(format!("{name} belongs to another user; {}", remedy("tap0")));
    }
    if tap.is_open {
        return Err(format!("something else has {name} open; each machine needs a tap interface of its own"));
    }
    Ok(name.to_owned())
}

/// A tap interface at its place in sysfs.
fn tap_at(place: &Path) -> Option<Tap> {
    let read = |file: &str| fs::read_to_string(place.join(file)).ok();
    let flags = read("tun_flags")?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
    let owner = read("owner").and_then(|text| text.trim().parse::<i64>().ok());
    (flags & IFF_TAP != 0).then(|| Tap {
        owner: owner.and_then(|owner| u32::try_from(owner).ok()),
        is_open: read("carrier").is_some_and(|text| text.trim() == "1"),
    })
}

#[cfg(test)]
mod tests {
    use super::choose;
    use std::fs;
    use std::path::Path;

    fn interface(folder: &Path, name: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(folder.join(name)).expect("a folder");
        for (file, text) in files {
            fs::write(folder.join(name).join(file), text).expect("a file");
        }
    }

    #[test]
    fn a_tap_of_ones_own_is_found_and_all_else_explained() {
        let folder = std::env::temp_dir().join(format!("aegis-taps-{}", std::process::id()));
        interface(&folder, "eth0", &[("carrier", "1\n")]);
        interface(&folder, "tun0", &[("tun_flags", "0x1001\n"), ("owner", "1000\n")]);
        interface(&folder, "tap0", &[("tun_flags", "0x1002\n"), ("owner", "-1\n"), ("carrier", "0\n")]);
        interface(&folder, "tap1", &[("tun_flags", "0x1002\n"), ("owner", "1000\n"), ("carrier", "1\n")]);
        let refusal = |name, user| choose(&folder, name, user).expect_err("a refusal");
        assert!(refusal(None, 1000).contains("no free tap interface of yours; `sudo ip tuntap add dev tap0"));
        interface(&folder, "tap2", &[("tun_flags", "0x1002\n"), ("owner", "1000\n"), ("carrier", "0\n")]);
        assert_eq!(choose(&folder, None, 1000), Ok("tap2".into()));
        assert_eq!(choose(&folder, Some("tap2"), 1000), Ok("tap2".into()));
        assert_eq!(choose(&folder, Some("tap0"), 0), Ok("tap0".into()), "root may");
        assert!(
            refusal(Some("tap9"), 1000)
                .starts_with("no interface tap9; `sudo ip tuntap add dev tap9 mode tap user 1000")
        );
        assert!(refusal(Some("eth0"), 1000).starts_with("eth0 is no tap interface"));
        assert!(refusal(Some("tun0"), 1000).starts_with("tun0 is no tap interface"));
        assert!(refusal(Some("tap0"), 1000).starts_with("tap0 belongs to another user"));
        assert!(refusal(Some("tap1"), 1000).starts_with("something else has tap1 open"));
        fs::remove_dir_all(folder).expect("it is there");
    }
}
