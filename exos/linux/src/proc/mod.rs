//! The facts behind `/proc`: what processes and the system tell about themselves, in Linux 6.1's
//! formats.
//!
//! Programs parse these texts, so columns, units and the order of lines are Linux's even where a figure is always 0
//! here: what is not counted is 0, what has no meaning here is left away. Parts: [`process_text`] for a process,
//! [`memory_text`] for its areas, [`system_text`] for the system, [`processor_text`] for `cpuinfo`, [`mount_text`] for
//! mounts, [`control_group`] for the members of groups, [`net_text`] and [`net_counter_text`] for the network.
//!
//! The name space holds `/proc`, which holds these facts, which need the name space: so the system
//! is known weakly, and set after it was made. Locks are taken for a field's access only and in the
//! order that `process` states.

mod control_group;
pub(crate) mod disk_text;
mod interface_text;
mod ipc_text;
mod memory_file;
mod memory_text;
mod mount_text;
mod net_counter_text;
mod net_text;
mod network_facts;
mod opened;
mod process_text;
mod processor_text;
pub(crate) mod socket_list;
mod system_text;
#[cfg(test)]
mod tests;
mod text;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::location::Location;
use exos::fs::metadata::Timestamp;
use exos::fs::open_file::OpenFile;
use exos::fs::permission::Credentials;
use exos::fs::proc_fs::{
    DescriptorView, MemoryFile, OpenText, ProcessLink, ProcessProvider, ProcessText, SPACES, SystemText,
};
use exos::fs::vnode::ProcessName;
use exos::fs::walk::{Caller, LookupFlags};
use exos::sync::Once;

use self::opened::target;
use self::text::{Text, put};
use crate::task::listing::{Listing, Member, birth_of};
use crate::task::memory::{DUMPABLE_BY_USER, Space};
use crate::task::settings::default_of;
use crate::task::system::System;

/// Longest host or domain name.
const HOST_NAME_BYTES_MAX: usize = 64;

/// What `/proc` is made from.
pub struct ProcFacts {
    system: Once<Weak<System>>,
    listing: Arc<Listing>,
    boot_id: Once<[u8; 16]>,
}

impl ProcFacts {
    /// Of the processes in `listing`; no system yet.
    #[must_use]
    pub fn new(listing: &Arc<Listing>) -> Arc<Self> {
        Arc::new(Self { system: Once::new(), listing: listing.clone(), boot_id: Once::new() })
    }

    /// Tells which system it is; only the first call counts.
    pub fn set_system(&self, system: &Arc<System>) {
        self.system.call_once(|| Arc::downgrade(system));
        self.boot_id.call_once(|| system_text::random_uuid(system));
    }

    fn system(&self) -> Result<Arc<System>> {
        self.system.get().and_then(Weak::upgrade).ok_or(Errno::ENOENT)
    }

    /// The memory of a process that is looked into. `EACCES`: the reader may not. `ESRCH`: it has just got another, of
    /// which it is not known yet.
    fn space_to_look_into(&self, name: ProcessName) -> Result<Arc<Space>> {
        let space = self.listing.find(name)?.0.process.space();
        let is_still = Arc::ptr_eq(&target(&self.listing, name)?.space(), &space);
        if is_still { Ok(space) } else { Err(Errno::ESRCH) }
    }
}

impl ProcessProvider for ProcFacts {
    fn current(&self) -> (u32, u32) {
        self.listing.current_numbers()
    }

    fn processes(&self) -> Vec<u32> {
        self.listing.members().iter().map(|member| member.process.pid).collect()
    }

    fn owner(&self, name: ProcessName) -> Option<(u32, u32)> {
        let (member, _) = self.listing.find(name).ok()?;
        if member.process.space().dumpable() != DUMPABLE_BY_USER {
            return Some((0, 0));
        }
        let identities = member.process.identities.lock();
        Some((identities.uid[1], identities.gid[1]))
    }

    fn named(&self, name: ProcessName) -> Option<ProcessName> {
        let (member, thread) = self.listing.find(name).ok()?;
        Some(ProcessName { birth: birth_of(name, &member, &thread), ..name })
    }

    fn threads(&self, process: ProcessName) -> Vec<u32> {
        self.listing
            .find(process)
            .map_or_else(|_| Vec::new(), |(member, _)| member.threads.iter().map(|thread| thread.tid()).collect())
    }

    fn open_text(&self, name: ProcessName, text: ProcessText) -> Result<Arc<dyn OpenText>> {
        use ProcessText::{AuxiliaryVector, Environment, Maps, MountInfo, Mounts, Smaps, SmapsRollup};
        let system = self.system.get().ok_or(Errno::ENOENT)?;
        let (Member { process, .. }, thread) = self.listing.find(name)?;
        let image = process.image.lock().clone();
        let space = match text {
            AuxiliaryVector | Environment | Maps | Smaps | SmapsRollup => {
                let space = self.space_to_look_into(name)?;
                // Taken before the memory, it is older if another program has begun meanwhile.
                if !Arc::ptr_eq(&process.image.lock(), &image) {
                    return Err(Errno::ESRCH);
                }
                space
            }
            _ => process.space(),
        };
        let auxiliary = if text == AuxiliaryVector { image.auxiliary.clone() } else { Vec::new() };
        let root = matches!(text, Mounts | MountInfo).then(|| process.files.root());
        let (process, thread) = (Arc::downgrade(&process), Arc::downgrade(&thread));
        let (system, space, image) = (system.clone(), Arc::downgrade(&space), Arc::downgrade(&image));
        Ok(Arc::new(opened::ProcessFile { system, name, process, space, image, auxiliary, thread, root, text }))
    }

    fn check_look(&self, name: ProcessName) -> Result<()> {
        target(&self.listing, name).map(|_| ())
    }

    fn memory_file(&self, name: ProcessName, file: MemoryFile) -> Result<Arc<dyn OpenFile>> {
        let space = Arc::downgrade(&self.space_to_look_into(name)?);
        Ok(match file {
            MemoryFile::Memory => Arc::new(memory_file::MemoryFile(space)),
            MemoryFile::PageMap => Arc::new(memory_file::PageMapFile(space)),
        })
    }

    fn process_link(&self, name: ProcessName, link: ProcessLink) -> Result<Location> {
        let gone = |error| if error == Errno::ESRCH { Errno::ENOENT } else { error };
        let process = target(&self.listing, name).map_err(gone)?;
        if process.has_ended() {
            return Err(Errno::ENOENT);
        }
        let files = &process.files;
        match link {
            ProcessLink::WorkingDirectory => Ok(files.current()),
            ProcessLink::Root => Ok(files.root()),
            ProcessLink::Program => {
                let (location, path) = {
                    let image = process.image.lock();
                    (image.location.clone(), image.executable.clone())
                };
                match location {
                    Some(location) => Ok(location),
                    None => self.look_up(&files.root(), &path),
                }
            }
        }
    }

    fn space(&self, place: usize) -> Result<Location> {
        let (_, kind, number) = SPACES.get(place).ok_or(Errno::ENOENT)?;
        let name = alloc::format!("{kind}:[{number}]");
        Ok(self.system()?.files.namespace.place_without_directory(*number, &name, Timestamp::default()))
    }

    fn descriptors(&self, process: ProcessName) -> Vec<u32> {
        self.listing.process(process).map_or_else(|_| Vec::new(), |process| process.files.table().numbers().collect())
    }

    fn descriptor(&self, process: ProcessName, number: u32) -> Result<DescriptorView> {
        let description = self.listing.process(process)?.files.get(u64::from(number))?;
        Ok(DescriptorView {
            location: description.location().clone(),
            is_readable: description.is_readable(),
            is_writable: description.is_writable(),
        })
    }

    fn open_descriptor_text(&self, process: ProcessName, number: u32) -> Result<Arc<dyn OpenText>> {
        let process = Arc::downgrade(&self.listing.process(process)?);
        Ok(Arc::new(opened::DescriptorFile { process, number }))
    }

    fn system_text(&self, text: SystemText, out: &mut Vec<u8>) -> Result<()> {
        let system = self.system()?;
        let boot_id = self.boot_id.get().copied().unwrap_or_default();
        let members = self.listing.members();
        let subject = system_text::Subject { system: &system, members: &members, boot_id };
        let mut out = Text::new(out);
        match self.listing.settings.get(text) {
            Some(value) => put!(out, "{value}\n"),
            None if net_text::append(&system.files.inet, &members, text, &mut out)? => {}
            None => system_text::append(&subject, text, &mut out),
        }
        out.end()
    }

    fn set_system_text(&self, text: SystemText, value: &[u8]) -> Result<()> {
        let system = self.system()?;
        let field = match text {
            SystemText::HostName => &system.hostname,
            SystemText::DomainName => &system.domain_name,
            _ if default_of(text).is_some() => return self.listing.settings.set(text, value),
            _ => return ipc_text::set_limit(&system.ipc, text, value),
        };
        let name = value.split(|byte| matches!(byte, 0 | b'\n')).next().unwrap_or_default();
        *field.lock() = name[..name.len().min(HOST_NAME_BYTES_MAX)].to_vec();
        Ok(())
    }
}

impl ProcFacts {
    fn look_up(&self, root: &Location, path: &[u8]) -> Result<Location> {
        let credentials = Credentials::ROOT;
        let caller = Caller { root, credentials: &credentials, umask: 0, now: Timestamp::default() };
        self.system()?.files.namespace.lookup(&caller, root, path, LookupFlags::FOLLOW)
    }
}
