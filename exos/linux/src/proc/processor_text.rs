//! `cpuinfo` from CPUID (`arch/x86/kernel/cpu/proc.c`); names of features as in Linux's
//! `cpufeatures.h`.
//!
//! A feature is named only if a program can use it: those whose registers the machine does not save
//! are left out.

use alloc::string::String;
use alloc::vec::Vec;

use super::text::{Text, put};
use crate::task::system::Platform;

/// XCR0: the upper halves of the YMM registers.
const STATE_YMM: u64 = 1 << 2;
/// XCR0: mask registers and both parts of the ZMM registers.
const STATE_ZMM: u64 = 7 << 5;
/// XCR0: tiles.
const STATE_TILE: u64 = 3 << 17;

/// A CPUID register and the features that its bits are.
struct FeatureWord {
    leaf: u32,
    subleaf: u32,
    /// 0 EAX, 1 EBX, 2 ECX, 3 EDX.
    register: usize,
    names: &'static [(u8, &'static str)],
}

/// In the order in which Linux names them.
#[rustfmt::skip]
const FEATURE_WORDS: &[FeatureWord] = &[
    FeatureWord {
        leaf: 1,
        subleaf: 0,
        register: 3,
        names: &[
            (0, "fpu"), (1, "vme"), (2, "de"), (3, "pse"), (4, "tsc"), (5, "msr"), (6, "pae"), (7, "mce"), (8, "cx8"),
            (9, "apic"), (11, "sep"), (12, "mtrr"), (13, "pge"), (14, "mca"), (15, "cmov"), (16, "pat"), (17, "pse36"),
            (18, "pn"), (19, "clflush"), (21, "dts"), (22, "acpi"), (23, "mmx"), (24, "fxsr"), (25, "sse"),
            (26, "sse2"), (27, "ss"), (28, "ht"), (29, "tm"), (30, "ia64"), (31, "pbe"),
        ],
    },
    FeatureWord {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: 3,
        names: &[
            (11, "syscall"), (19, "mp"), (20, "nx"), (22, "mmxext"), (25, "fxsr_opt"), (26, "pdpe1gb"),
            (27, "rdtscp"), (29, "lm"), (30, "3dnowext"), (31, "3dnow"),
        ],
    },
    FeatureWord { leaf: 0x8000_0007, subleaf: 0, register: 3, names: &[(8, "constant_tsc"), (8, "nonstop_tsc")] },
    FeatureWord {
        leaf: 1,
        subleaf: 0,
        register: 2,
        names: &[
            (0, "pni"), (1, "pclmulqdq"), (2, "dtes64"), (3, "monitor"), (4, "ds_cpl"), (5, "vmx"), (6, "smx"),
            (7, "est"), (8, "tm2"), (9, "ssse3"), (10, "cid"), (11, "sdbg"), (12, "fma"), (13, "cx16"), (14, "xtpr"),
            (15, "pdcm"), (17, "pcid"), (18, "dca"), (19, "sse4_1"), (20, "sse4_2"), (21, "x2apic"), (22, "movbe"),
            (23, "popcnt"), (24, "tsc_deadline_timer"), (25, "aes"), (26, "xsave"), (28, "avx"), (29, "f16c"),
            (30, "rdrand"), (31, "hypervisor"),
        ],
    },
    FeatureWord {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: 2,
        names: &[
            (0, "lahf_lm"), (1, "cmp_legacy"), (2, "svm"), (3, "extapic"), (4, "cr8_legacy"), (5, "abm"), (6, "sse4a"),
            (7, "misalignsse"), (8, "3dnowprefetch"), (9, "osvw"), (10, "ibs"), (11, "xop"), (12, "skinit"),
            (13, "wdt"), (15, "lwp"), (16, "fma4"), (17, "tce"), (19, "nodeid_msr"), (21, "tbm"), (22, "topoext"),
            (23, "perfctr_core"), (24, "perfctr_nb"), (26, "bpext"), (27, "ptsc"), (28, "perfctr_llc"), (29, "mwaitx"),
        ],
    },
    FeatureWord {
        leaf: 7,
        subleaf: 0,
        register: 1,
        names: &[
            (0, "fsgsbase"), (1, "tsc_adjust"), (2, "sgx"), (3, "bmi1"), (4, "hle"), (5, "avx2"), (7, "smep"),
            (8, "bmi2"), (9, "erms"), (10, "invpcid"), (11, "rtm"), (12, "cqm"), (14, "mpx"), (15, "rdt_a"),
            (16, "avx512f"), (17, "avx512dq"), (18, "rdseed"), (19, "adx"), (20, "smap"), (21, "avx512ifma"),
            (23, "clflushopt"), (24, "clwb"), (25, "intel_pt"), (26, "avx512pf"), (27, "avx512er"), (28, "avx512cd"),
            (29, "sha_ni"), (30, "avx512bw"), (31, "avx512vl"),
        ],
    },
    FeatureWord {
        leaf: 13,
        subleaf: 1,
        register: 0,
        names: &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1"), (3, "xsaves")],
    },
    FeatureWord {
        leaf: 0x8000_0008,
        subleaf: 0,
        register: 1,
        names: &[(0, "clzero"), (1, "irperf"), (2, "xsaveerptr"), (4, "rdpru"), (9, "wbnoinvd")],
    },
    FeatureWord { leaf: 6, subleaf: 0, register: 0, names: &[(2, "arat")] },
    FeatureWord {
        leaf: 7,
        subleaf: 0,
        register: 2,
        names: &[
            (1, "avx512vbmi"), (2, "umip"), (4, "ospke"), (5, "waitpkg"), (6, "avx512_vbmi2"), (8, "gfni"),
            (9, "vaes"), (10, "vpclmulqdq"), (11, "avx512_vnni"), (12, "avx512_bitalg"), (13, "tme"),
            (14, "avx512_vpopcntdq"), (16, "la57"), (22, "rdpid"), (25, "cldemote"), (27, "movdiri"),
            (28, "movdir64b"),
        ],
    },
    FeatureWord {
        leaf: 7,
        subleaf: 0,
        register: 3,
        names: &[
            (2, "avx512_4vnniw"), (3, "avx512_4fmaps"), (4, "fsrm"), (8, "avx512_vp2intersect"), (10, "md_clear"),
            (14, "serialize"), (18, "pconfig"), (19, "arch_lbr"), (20, "ibt"), (22, "amx_bf16"), (23, "avx512_fp16"),
            (24, "amx_tile"), (25, "amx_int8"), (28, "flush_l1d"), (29, "arch_capabilities"),
        ],
    },
];

/// The vector state without which a feature cannot be used.
fn needed_state(name: &str) -> u64 {
    const IN_YMM: [&str; 7] = ["fma", "f16c", "xop", "fma4", "vaes", "vpclmulqdq", "avx2"];
    match name {
        name if name.starts_with("avx512") => STATE_ZMM | STATE_YMM,
        name if name.starts_with("amx") => STATE_TILE,
        name if name.starts_with("avx") || IN_YMM.contains(&name) => STATE_YMM,
        _ => 0,
    }
}

/// CPUID with the ranges that the processor has: leaves beyond them are zero, not whatever the last
/// one says.
struct Identification<'a> {
    platform: &'a dyn Platform,
    leaf_max: u32,
    extended_max: u32,
}

impl<'a> Identification<'a> {
    fn new(platform: &'a dyn Platform) -> Self {
        let leaf_max = platform.cpuid(0, 0)[0];
        let extended_max = platform.cpuid(0x8000_0000, 0)[0];
        Self { platform, leaf_max, extended_max }
    }

    fn leaf(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let is_extended = leaf >= 0x8000_0000;
        let max = if is_extended { self.extended_max } else { self.leaf_max };
        if leaf > max { [0; 4] } else { self.platform.cpuid(leaf, subleaf) }
    }

    fn vendor(&self) -> String {
        let [_, ebx, ecx, edx] = self.platform.cpuid(0, 0);
        text_of(&[ebx, edx, ecx])
    }

    fn model_name(&self) -> String {
        let words: Vec<u32> = (0x8000_0002..=0x8000_0004).flat_map(|leaf| self.leaf(leaf, 0)).collect();
        let name = text_of(&words);
        if name.is_empty() { String::from("unknown") } else { name }
    }

    /// Family, model, stepping.
    fn signature(&self) -> (u32, u32, u32) {
        let word = self.leaf(1, 0)[0];
        let base = word >> 8 & 15;
        let family = if base == 15 { base + (word >> 20 & 255) } else { base };
        let model_high = if base == 15 || base == 6 { word >> 16 & 15 } else { 0 };
        (family, model_high << 4 | word >> 4 & 15, word & 15)
    }

    fn flags(&self) -> String {
        let (state, _) = self.platform.vector_format();
        let mut text = String::new();
        for word in FEATURE_WORDS {
            let bits = self.leaf(word.leaf, word.subleaf)[word.register];
            for (bit, name) in word.names {
                let needed = needed_state(name);
                if bits >> bit & 1 == 1 && state & needed == needed {
                    if !text.is_empty() {
                        text.push(' ');
                    }
                    text.push_str(name);
                }
            }
        }
        text
    }

    /// The base frequency where CPUID has it; a hypervisor may tell that of the time stamp counter.
    fn frequency_khz(&self) -> Option<u32> {
        let base_mhz = self.leaf(0x16, 0)[0] & 0xffff;
        if base_mhz != 0 {
            return Some(base_mhz * 1000);
        }
        let has_hypervisor = self.leaf(1, 0)[2] >> 31 == 1;
        if !has_hypervisor || self.platform.cpuid(0x4000_0000, 0)[0] < 0x4000_0010 {
            return None;
        }
        Some(self.platform.cpuid(0x4000_0010, 0)[0]).filter(|khz| *khz != 0)
    }

    /// The second-level cache in KiB, from AMD's leaf, which QEMU fills for all models.
    fn cache_kib(&self) -> u32 {
        self.leaf(0x8000_0006, 0)[2] >> 16
    }

    fn address_bits(&self) -> (u32, u32) {
        match self.leaf(0x8000_0008, 0)[0] {
            0 => (36, 48),
            word => (word & 255, word >> 8 & 255),
        }
    }

    fn flush_line_bytes(&self) -> u32 {
        match self.leaf(1, 0)[1] >> 8 & 255 {
            0 => 64,
            quads => quads * 8,
        }
    }
}

/// Printable characters of registers, without blanks around them.
fn text_of(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let text: String = bytes.filter(|byte| matches!(byte, b' '..=b'~')).map(char::from).collect();
    String::from(text.trim())
}

/// `cpuinfo` for `count` equal processors of one package.
pub(super) fn append(platform: &dyn Platform, count: u32, out: &mut Text<'_>) {
    let id = Identification::new(platform);
    let (vendor, model_name, flags) = (id.vendor(), id.model_name(), id.flags());
    let (family, model, stepping) = id.signature();
    let (physical_bits, virtual_bits) = id.address_bits();
    let line_bytes = id.flush_line_bytes();
    for processor in 0..count {
        put!(out, "processor\t: {processor}\nvendor_id\t: {vendor}\ncpu family\t: {family}\n");
        put!(out, "model\t\t: {model}\nmodel name\t: {model_name}\nstepping\t: {stepping}\n");
        if let Some(khz) = id.frequency_khz() {
            put!(out, "cpu MHz\t\t: {}.{:03}\n", khz / 1000, khz % 1000);
        }
        match id.cache_kib() {
            0 => {}
            kib => put!(out, "cache size\t: {kib} KB\n"),
        }
        put!(out, "physical id\t: 0\nsiblings\t: {count}\ncore id\t\t: {processor}\ncpu cores\t: {count}\n");
        put!(out, "apicid\t\t: {processor}\ninitial apicid\t: {processor}\n");
        put!(out, "fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\n", id.leaf_max);
        put!(out, "flags\t\t: {flags}\nbugs\t\t:\n");
        match id.frequency_khz() {
            None => out.raw(b"bogomips\t: 0.00\n"),
            // Twice the frequency, as the delay loop is counted from the time stamp counter.
            Some(khz) => put!(out, "bogomips\t: {}.{:02}\n", khz / 500, khz / 5 % 100),
        }
        put!(out, "clflush size\t: {line_bytes}\ncache_alignment\t: {line_bytes}\n");
        put!(out, "address sizes\t: {physical_bits} bits physical, {virtual_bits} bits virtual\n");
        out.raw(b"power management:\n\n");
    }
}
