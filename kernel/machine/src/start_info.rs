//! The PVH start structure: what the virtual machine monitor tells a kernel that it starts directly.
//!
//! Layout: Xen's `hvm_start_info` version 1 (`xen/include/public/arch-x86/hvm/start_info.h`). Nothing in it is
//! trusted: counts are clamped, addresses go through a [`PhysicalReader`], and microvm's trailing all-zero memory-map
//! entry is passed over.

use crate::PhysicalReader;

/// `hvm_start_info.magic`.
pub const START_INFO_MAGIC: u32 = 0x336e_c578;
/// Memory-map entry type of usable memory.
pub const MEMORY_TYPE_RAM: u32 = 1;
/// Most memory-map entries that are looked at.
const MEMORY_ENTRY_COUNT_MAX: u32 = 128;
/// Bytes of a memory-map entry.
const MEMORY_ENTRY_BYTES: u64 = 24;

/// Why a start structure is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartInfoError {
    /// The structure, or something that it points to, is outside readable memory.
    Unreadable,
    /// Not a start structure.
    BadMagic,
    /// Version 0 has no memory map.
    NoMemoryMap,
}

/// A module: physical address and exact length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Physical address.
    pub address: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// The decoded start structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartInfo {
    /// Physical address of the zero-terminated command line, 0 if none.
    pub command_line: u64,
    /// The first module (`-initrd`).
    pub module: Option<Module>,
    /// Physical address of the ACPI root pointer, 0 if none.
    pub rsdp: u64,
    memory_map: u64,
    memory_entry_count: u32,
}

impl StartInfo {
    /// Decodes the structure at `address`.
    pub fn parse(reader: &impl PhysicalReader, address: u64) -> Result<StartInfo, StartInfoError> {
        let word = |offset| reader.read_u32(address.wrapping_add(offset)).ok_or(StartInfoError::Unreadable);
        let double = |offset| reader.read_u64(address.wrapping_add(offset)).ok_or(StartInfoError::Unreadable);
        if word(0)? != START_INFO_MAGIC {
            return Err(StartInfoError::BadMagic);
        }
        let (version, module_count, module_list) = (word(4)?, word(12)?, double(16)?);
        let (command_line, rsdp) = (double(24)?, double(32)?);
        let (memory_map, memory_entry_count) = if version >= 1 { (double(40)?, word(48)?) } else { (0, 0) };
        if memory_map == 0 || memory_entry_count == 0 {
            return Err(StartInfoError::NoMemoryMap);
        }
        let first = |offset| reader.read_u64(module_list.wrapping_add(offset)).ok_or(StartInfoError::Unreadable);
        let has_module = module_count != 0;
        let module = if has_module { Some(Module { address: first(0)?, length_bytes: first(8)? }) } else { None };
        Ok(StartInfo {
            command_line,
            module,
            rsdp,
            memory_map,
            memory_entry_count: memory_entry_count.min(MEMORY_ENTRY_COUNT_MAX),
        })
    }

    /// Calls `visit(address, length_bytes, type)` for every entry of the memory map that is not empty.
    pub fn for_each_memory(
        &self,
        reader: &impl PhysicalReader,
        mut visit: impl FnMut(u64, u64, u32),
    ) -> Result<(), StartInfoError> {
        for index in 0..u64::from(self.memory_entry_count) {
            let entry = self.memory_map.wrapping_add(index * MEMORY_ENTRY_BYTES);
            let address = reader.read_u64(entry).ok_or(StartInfoError::Unreadable)?;
            let length_bytes = reader.read_u64(entry.wrapping_add(8)).ok_or(StartInfoError::Unreadable)?;
            let kind = reader.read_u32(entry.wrapping_add(16)).ok_or(StartInfoError::Unreadable)?;
            if length_bytes != 0 && address.checked_add(length_bytes).is_some() {
                visit(address, length_bytes, kind);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeMemory;
    use std::vec;
    use std::vec::Vec;

    fn sample() -> FakeMemory {
        let mut bytes: Vec<u8> = vec![0; 0x200];
        let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(0, &START_INFO_MAGIC.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        put(12, &1_u32.to_le_bytes());
        put(16, &0x1100_u64.to_le_bytes());
        put(24, &0x1180_u64.to_le_bytes());
        put(32, &0xf_0000_u64.to_le_bytes());
        put(40, &0x1080_u64.to_le_bytes());
        put(48, &3_u32.to_le_bytes());
        put(0x80, &0_u64.to_le_bytes());
        put(0x88, &0x9_fc00_u64.to_le_bytes());
        put(0x90, &1_u32.to_le_bytes());
        put(0x98, &0x10_0000_u64.to_le_bytes());
        put(0xa0, &0x3f0_0000_u64.to_le_bytes());
        put(0xa8, &1_u32.to_le_bytes());
        put(0x100, &0x200_0000_u64.to_le_bytes());
        put(0x108, &777_u64.to_le_bytes());
        FakeMemory { base: 0x1000, bytes }
    }

    #[test]
    fn a_start_structure_is_decoded_and_empty_entries_are_passed_over() {
        let memory = sample();
        let info = StartInfo::parse(&memory, 0x1000).expect("sample is sound");
        assert_eq!(info.module, Some(Module { address: 0x200_0000, length_bytes: 777 }));
        assert_eq!((info.command_line, info.rsdp), (0x1180, 0xf_0000));
        let mut seen = Vec::new();
        info.for_each_memory(&memory, |address, length, kind| seen.push((address, length, kind))).expect("readable");
        assert_eq!(seen, [(0, 0x9_fc00, 1), (0x10_0000, 0x3f0_0000, 1)]);
    }

    #[test]
    fn damaged_structures_are_refused() {
        let mut memory = sample();
        assert_eq!(StartInfo::parse(&memory, 0x1004), Err(StartInfoError::BadMagic));
        assert_eq!(StartInfo::parse(&memory, 0x9000), Err(StartInfoError::Unreadable));
        memory.bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes()[..8]);
        assert_eq!(StartInfo::parse(&memory, 0x1000), Err(StartInfoError::Unreadable));
        let mut memory = sample();
        memory.bytes[4] = 0;
        assert_eq!(StartInfo::parse(&memory, 0x1000), Err(StartInfoError::NoMemoryMap));
        let mut memory = sample();
        memory.bytes[48..52].copy_from_slice(&u32::MAX.to_le_bytes());
        let info = StartInfo::parse(&memory, 0x1000).expect("clamped");
        assert_eq!(info.for_each_memory(&memory, |_, _, _| ()), Err(StartInfoError::Unreadable));
    }
}
