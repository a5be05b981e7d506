//! One program in one space that plays its processor too, against what it may do by its own reckoning.

extern crate std;

use std::collections::BTreeMap;
use std::vec::Vec;

use aegis_proto::watch::{Touch, WORD_OWNER, WORD_SHADOW_COUNT, WORD_TOUCH_COUNT, WORD_TOUCH_FIRST};
use proptest::prelude::*;

use super::{PAGE_BYTES, RANGE_COUNT_MAX, Refused, Rights, Space, Watch};

const PAGE: u64 = PAGE_BYTES as u64;
const START: u64 = 0x10_0000;
const NOTES: u64 = 0x20_0000;
const SHADOW: u64 = 0x30_0000;
const THREAD: u64 = 0x7000;
const ALL: Rights = Rights { loads: true, stores: true, withheld: false };
const LOADS: Rights = Rights { loads: true, stores: false, withheld: false };

/// Pages by number, each of them words.
struct Fake {
    name: u64,
    pages: BTreeMap<u64, (Rights, Vec<u64>)>,
    copy_count: usize,
}

impl Fake {
    fn new(page_count: u64, shadow_count: u64) -> Self {
        let mut fake = Self { name: 7, pages: BTreeMap::new(), copy_count: 0 };
        let program = (0..page_count).map(|page| START / PAGE + page);
        let own = (0..shadow_count).map(|page| SHADOW / PAGE + page).chain([NOTES / PAGE]);
        for page in program.chain(own) {
            fake.pages.insert(page, (ALL, std::vec![0; 512]));
        }
        fake
    }

    fn rights(&self, address: u64) -> Rights {
        self.pages[&(address / PAGE)].0
    }

    fn word(&mut self, address: u64) -> &mut u64 {
        let page = self.pages.get_mut(&(address / PAGE)).expect("a page of the test");
        &mut page.1[(address % PAGE / 8) as usize]
    }

    fn notes(&mut self) -> Vec<Touch> {
        let count = *self.word(NOTES + 8 * WORD_TOUCH_COUNT as u64);
        *self.word(NOTES + 8 * WORD_TOUCH_COUNT as u64) = 0;
        (0..count).map(|index| Touch::of_word(*self.word(NOTES + 8 * (WORD_TOUCH_FIRST as u64 + index)))).collect()
    }
}

impl Space for Fake {
    type Page = u64;
    fn name(&self) -> u64 {
        self.name
    }
    fn page(&self, address: u64) -> Option<(u64, Rights)> {
        self.pages.get(&(address / PAGE)).map(|page| (address / PAGE, page.0))
    }
    fn set_rights(&mut self, address: u64, page: u64, rights: Rights) {
        assert_eq!(address / PAGE, page);
        self.pages.get_mut(&page).expect("it was looked up").0 = rights;
    }
    fn load(&self, page: u64, word: usize) -> u64 {
        self.pages[&page].1[word]
    }
    fn store(&mut self, page: u64, word: usize, value: u64) {
        self.pages.get_mut(&page).expect("it was looked up").1[word] = value;
    }
    fn copy(&mut self, from: u64, to: u64) {
        self.copy_count += 1;
        let words = self.pages[&from].1.clone();
        self.pages.get_mut(&to).expect("it was looked up").1 = words;
    }
}

fn placed(page_count: u64, shadow_count: u64) -> (Watch, Fake) {
    let (mut watch, mut fake) = (Watch::new(), Fake::new(page_count, shadow_count));
    watch.place(fake.name, [START, page_count, NOTES, SHADOW, shadow_count]).expect("whole pages");
    *fake.word(NOTES + 8 * WORD_OWNER as u64) = THREAD;
    (watch, fake)
}

#[test]
fn a_store_has_its_shadow_and_its_note_before_it_goes_through() {
    let (mut watch, mut fake) = placed(2, 2);
    *fake.word(START + PAGE + 16) = 42;
    watch.close(&mut fake, [START, 2, 1]).expect("placed");
    assert_eq!(fake.rights(START), Rights { loads: false, stores: false, withheld: true });
    assert!(watch.fault(&mut fake, START + PAGE + 19, true, THREAD));
    assert_eq!(fake.rights(START + PAGE), ALL);
    assert_eq!(*fake.word(SHADOW + 16), 42);
    assert!(watch.fault(&mut fake, START, false, THREAD));
    assert_eq!(fake.rights(START), Rights { loads: true, stores: false, withheld: true });
    assert!(watch.fault(&mut fake, START, true, THREAD), "the store after the load");
    let touch = |page, shadow, is_store| Touch { page, shadow, is_store };
    assert_eq!(fake.notes(), [touch(1, Some(0), true), touch(0, None, false), touch(0, Some(1), true)]);
    assert!(watch.fault(&mut fake, START, true, THREAD), "an old translation");
    assert_eq!((fake.notes(), fake.copy_count), (Vec::new(), 2));
}

#[test]
fn what_cannot_be_answered_is_the_library_oss() {
    let (mut watch, mut fake) = placed(4, 1);
    watch.close(&mut fake, [START, 3, 1]).expect("placed");
    assert!(!watch.fault(&mut fake, START, true, THREAD + 8), "another thread");
    assert!(!watch.fault(&mut fake, START, true, 0), "no thread");
    *fake.word(NOTES) = 0;
    assert!(!watch.fault(&mut fake, START, true, 0), "nobody");
    *fake.word(NOTES) = THREAD;
    assert!(watch.fault(&mut fake, START, true, THREAD));
    assert!(!watch.fault(&mut fake, START + PAGE, true, THREAD), "no shadow is left");
    assert!(watch.fault(&mut fake, START + PAGE, false, THREAD), "a load needs none");
    for count in [511, 1 << 40, u64::MAX] {
        *fake.word(NOTES + 8 * WORD_TOUCH_COUNT as u64) = count;
        *fake.word(NOTES + 8 * WORD_SHADOW_COUNT as u64) = 0;
        assert!(!watch.fault(&mut fake, START + 2 * PAGE, false, THREAD), "no room for notes");
    }
    *fake.word(NOTES + 8 * WORD_TOUCH_COUNT as u64) = 0;
    *fake.word(NOTES + 8 * WORD_SHADOW_COUNT as u64) = u64::MAX;
    assert!(!watch.fault(&mut fake, START + 2 * PAGE, true, THREAD), "a count of shadows that cannot be");
    fake.pages.get_mut(&(NOTES / PAGE)).expect("there").0 = LOADS;
    assert!(!watch.fault(&mut fake, START + 2 * PAGE, false, THREAD), "notes that the program cannot write");
    fake.pages.remove(&(NOTES / PAGE));
    assert!(!watch.fault(&mut fake, START + 2 * PAGE, false, THREAD), "no notes");
    assert!(!watch.fault(&mut fake, START + 9 * PAGE, false, THREAD), "no page");
}

#[test]
fn no_page_gets_what_it_did_not_have() {
    let (mut watch, mut fake) = placed(1, 1);
    fake.pages.get_mut(&(START / PAGE)).expect("there").0 = LOADS;
    watch.close(&mut fake, [START, 1, 1]).expect("placed");
    assert!(!watch.fault(&mut fake, START, true, THREAD));
    assert!(watch.fault(&mut fake, START, false, THREAD));
    assert!(!watch.fault(&mut fake, START, true, THREAD));
    assert_eq!(fake.rights(START), LOADS);
}

#[test]
fn arguments_are_looked_at() {
    let (mut watch, mut fake) = placed(4, 0);
    let refused = Err(Refused::Argument);
    for words in [
        [START + 1, 1, NOTES, 0, 0],
        [START, 0, NOTES, 0, 0],
        [START, u64::MAX, NOTES, 0, 0],
        [START, 1 << 52, NOTES, 0, 0],
        [!4095, 1, NOTES, 0, 0],
        [START, 1, NOTES + 8, 0, 0],
        [START, 1, 1 << 47, 0, 0],
        [START, 1, NOTES, SHADOW + 4, 1],
        [START, 1, NOTES, (1 << 47) - PAGE, 2],
        [START, 1, NOTES, SHADOW, 505],
    ] {
        assert_eq!(watch.place(7, words), refused, "{words:x?}");
    }
    for (words, expected) in [
        ([START, 513, 0], refused),
        ([START, 1, 2], refused),
        ([START, 5, 0], Err(Refused::NotPlaced)),
        ([START - PAGE, 2, 0], Err(Refused::NotPlaced)),
        ([START + 8, 1, 0], refused),
    ] {
        assert_eq!(watch.close(&mut fake, words), expected, "{words:x?}");
    }
    fake.name = 8;
    assert_eq!(watch.close(&mut fake, [START, 1, 0]), Err(Refused::NotPlaced), "another space's");
    assert_eq!((watch.forget(8, START), watch.forget(7, START)), (Err(Refused::NotPlaced), Ok(())));
}

#[test]
fn the_range_that_was_used_least_lately_makes_room() {
    let (mut watch, mut fake) = placed(1, 0);
    for number in 1..RANGE_COUNT_MAX as u64 {
        watch.place(7, [START + number * (PAGE << 8), 1, NOTES, 0, 0]).expect("room");
    }
    watch.close(&mut fake, [START, 1, 1]).expect("placed");
    assert!(watch.fault(&mut fake, START, false, THREAD));
    watch.place(9, [START, 1, NOTES, 0, 0]).expect("another's makes room");
    assert_eq!(watch.forget(7, START + (PAGE << 8)), Err(Refused::NotPlaced));
    assert_eq!(watch.forget(7, START), Ok(()));
}

/// What a program, its library OS and its processor do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Close(u64, u64),
    Load(u64),
    Store(u64),
    /// The program takes the notes.
    Take,
    /// The library OS maps a page anew, with all rights or for loads.
    Map(u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0..6_u64;
    let step = prop_oneof![
        (page.clone(), 0..2_u64).prop_map(|(page, kind)| Step::Close(page, kind)),
        page.clone().prop_map(Step::Load),
        page.clone().prop_map(Step::Store),
        Just(Step::Take),
        (page, any::<bool>()).prop_map(|(page, stores)| Step::Map(page, stores)),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    /// Whatever is done: an access that goes through after a close was noted, a noted store has a shadow of what was
    /// there before it, and no page has more than the library OS has given it.
    #[test]
    fn nothing_is_touched_unnoticed(steps in steps()) {
        let (mut watch, mut fake) = placed(6, 4);
        let mut given = [true; 6];
        let mut untold = [[false; 2]; 6];
        let mut value = 0;
        for step in steps {
            match step {
                Step::Close(page, kind) => {
                    watch.close(&mut fake, [START + page * PAGE, 1, kind]).expect("placed");
                    untold[page as usize][1] = true;
                    untold[page as usize][0] |= kind == 1;
                }
                Step::Map(page, stores) => {
                    fake.pages.get_mut(&(START / PAGE + page)).expect("there").0 = if stores { ALL } else { LOADS };
                    given[page as usize] = stores;
                    // It tells the program itself.
                    untold[page as usize] = [false; 2];
                }
                Step::Take => {
                    fake.notes();
                    *fake.word(NOTES + 8 * WORD_SHADOW_COUNT as u64) = 0;
                }
                Step::Load(page) | Step::Store(page) => {
                    let (address, is_store) = (START + page * PAGE, matches!(step, Step::Store(_)));
                    let before = *fake.word(address);
                    let count = *fake.word(NOTES + 8 * WORD_TOUCH_COUNT as u64);
                    let was_open = fake.rights(address).lets_through(is_store);
                    prop_assert!(!was_open || !untold[page as usize][usize::from(is_store)], "nobody was told");
                    if !was_open && !watch.fault(&mut fake, address, is_store, THREAD) {
                        continue;
                    }
                    prop_assert!(fake.rights(address).lets_through(is_store));
                    prop_assert!(!is_store || given[page as usize], "more than was given");
                    if !was_open {
                        untold[page as usize][0] = false;
                        untold[page as usize][1] &= !is_store;
                        let note = *fake.word(NOTES + 8 * (WORD_TOUCH_FIRST as u64 + count));
                        let note = Touch::of_word(note);
                        prop_assert_eq!((note.page, note.is_store, note.shadow.is_some()), (page, is_store, is_store));
                        if let Some(shadow) = note.shadow {
                            prop_assert_eq!(*fake.word(SHADOW + shadow * PAGE), before);
                        }
                    }
                    if is_store {
                        value += 1;
                        *fake.word(address) = value;
                    }
                }
            }
        }
    }
}
