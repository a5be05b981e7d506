//! The pod's end towards the host: how it is made, what the user sees of it, and what is run in it later.
//!
//! | module | holds |
//! |---|---|
//! | [`boot`] | from the run configuration and the root image to the first process |
//! | [`disk`], [`disks`] | a disk as the block layer sees it; which there are, as nodes of `/dev` |
//! | [`disk_session`], [`card_session`] | a disk, a card whose driver is in a domain or in the kernel |
//! | [`pooled_disk`] | a disk that is a part of one that several pods have |
//! | [`session_place`] | what those have in common: where a service is placed |
//! | [`etc_files`] | `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` as they are in the pod |
//! | [`card`] | the network card as the network's stack sees it |
//! | [`mounts`] | the host's directories in the pod's name space |
//! | [`network`] | what the card is connected to, as the run's configuration says |
//! | [`ports`], [`stream`], `standard_streams` | the console's ports; streams over them; descriptors 0 to 2 |
//! | [`events`] | signals and sizes that the host sends, questions that it asks |
//! | [`sessions`] | programs that `aegis exec` starts in a pod that runs |

pub mod boot;
pub mod card;
pub mod card_session;
pub mod disk;
pub mod disk_session;
pub mod disks;
pub mod etc_files;
pub mod events;
pub mod mounts;
pub mod network;
pub mod pooled_disk;
pub mod ports;
mod rights;
pub mod session_place;
pub mod sessions;
mod standard_streams;
pub mod stream;
