//! Bundles come back as they were written, lengths are kept to the byte, and no bytes make the parser panic.

use alloc::vec::Vec;
use proptest::prelude::*;

use super::{BundleDamage, PartPlan, WriteError, Writer, parse, write};
use crate::sink::Sink;

#[test]
fn lengths_must_be_kept() {
    let plans = [PartPlan { kind: 1, length_bytes: 3 }, PartPlan { kind: 2, length_bytes: 0 }];
    let mut writer = Writer::new(Vec::new(), &plans).unwrap();
    writer.write_all(b"ab").unwrap();
    assert_eq!(writer.write_all(b"cd"), Err(WriteError::Length));
    assert_eq!(writer.finish(), Err(WriteError::Length));
    let mut writer = Writer::new(Vec::new(), &plans).unwrap();
    writer.write_all(b"abc").unwrap();
    assert_eq!(writer.write_all(b"d"), Err(WriteError::Length));
    assert_eq!(writer.finish().unwrap().len(), 2 * 4096);
}

#[test]
fn plans_have_limits() {
    let plan = |length_bytes| PartPlan { kind: 1, length_bytes };
    assert!(Writer::new(Vec::new(), &[plan(1); 16]).is_ok());
    assert_eq!(Writer::new(Vec::new(), &[plan(1); 17]).err(), Some(WriteError::Plan));
    let overflow = [plan(u64::MAX - 5000), plan(5000)];
    assert_eq!(Writer::new(Vec::new(), &overflow).err(), Some(WriteError::Plan));
}

#[test]
fn misplaced_parts_are_refused() {
    let good = write(Vec::new(), &[(1, b"first".as_slice()), (2, &[7; 5000])]).unwrap();
    for (offset, value, expected) in [
        (0, 0, BundleDamage::NotBundle),
        (8, 9, BundleDamage::Version(9)),
        (12, 17, BundleDamage::PartCount(17)),
        (24, 1, BundleDamage::Part(0)),
        (25, 0, BundleDamage::Part(0)),
        (49, 0x10, BundleDamage::Part(1)),
        (57, 0xff, BundleDamage::Part(1)),
        (63, 0xff, BundleDamage::Part(1)),
    ] {
        let mut bad = good.clone();
        bad[offset] = value;
        assert_eq!(parse(&bad).err(), Some(expected), "byte {offset}");
    }
    assert_eq!(parse(&good[..4095]).err(), Some(BundleDamage::NotBundle));
    assert_eq!(parse(&good[..8192]).err(), Some(BundleDamage::Part(1)));
}

proptest! {
    #[test]
    fn round_trip(parts in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..9000)), 0..16)) {
        let borrowed: Vec<(u32, &[u8])> =
            parts.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())).collect();
        let bytes = write(Vec::new(), &borrowed).unwrap();
        prop_assert_eq!(bytes.len() % 4096, 0);
        let bundle = parse(&bytes).unwrap();
        prop_assert_eq!(bundle.parts().len(), parts.len());
        let mut covered = 4096;
        for (part, (kind, contents)) in bundle.parts().iter().zip(&parts) {
            prop_assert_eq!(part.kind, *kind);
            prop_assert_eq!(bundle.contents(part), contents.as_slice());
            let end = (part.offset_bytes + part.length_bytes) as usize;
            let padded = end.next_multiple_of(4096);
            prop_assert!(bytes[end..padded].iter().all(|byte| *byte == 0));
            covered = padded;
        }
        prop_assert_eq!(covered, bytes.len());
    }

    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0_usize..160, any::<u8>()), 1..30)) {
        let mut bytes = write(Vec::new(), &[(1, b"first".as_slice()), (3, &[7; 5000]), (9, &[])]).unwrap();
        for (offset, value) in damage {
            bytes[8 + offset] = value;
        }
        if let Ok(bundle) = parse(&bytes) {
            for part in bundle.parts() {
                prop_assert_eq!(bundle.contents(part).len() as u64, part.length_bytes);
            }
        }
    }
}
