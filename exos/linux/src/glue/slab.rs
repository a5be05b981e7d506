//! Slabs: blocks of the heap that are cut into objects of one class, for what a pod has many of.
//!
//! A name that is looked up for the first time takes three small objects, and there are as many names as files. The
//! TLSF allocator searches and splits for each; an object of a slab is the next one, or the last that came back. A slab
//! of which no object is used goes back to the allocator, so what was many of one size can become few of another.
//!
//! An object is as long as a block of its class would be: in place of the allocator's header it has the address of its
//! slab before it. Where there is no memory for a slab, one with a single object is what a block was.
//!
//! Neighbours: [`super::heap`], which locks it and keeps the objects that were freed last before it. Source: Bonwick,
//! "The Slab Allocator", 1994, sections 3.1 and 3.2. `exos/linux/tests/slab.rs` holds it against a model.

use core::alloc::Layout;
use core::mem::size_of;
use core::ptr::{NonNull, null_mut};

use exos_linux::spare_blocks::{CLASS_COUNT, SizeClass};

/// Bytes before an object: the address of its slab, and what keeps the object at a multiple of 16.
const HEADER_BYTES: usize = 16;
/// Most bytes of a slab with the allocator's own header, but for those of three long objects. The first of a class has
/// two objects, and each after it twice as many: of most classes there are few, and what is long-lived holds little.
const SLAB_BYTES_MAX: usize = 1024;

/// Alignment of a slab's block.
pub(crate) const SLAB_ALIGNMENT: usize = align_of::<Slab>();

/// What stands at the beginning of a slab; objects with their headers follow.
#[repr(C, align(16))]
struct Slab {
    /// Neighbours among the slabs of the class that have a free object.
    next: *mut Slab,
    previous: *mut Slab,
    /// Objects that came back, each with the address of the next.
    returned: *mut u8,
    /// The first header of objects that nobody has had.
    fresh: *mut u8,
    free_count: u32,
    object_count: u32,
    class: SizeClass,
}

/// The slabs that have a free object, by class.
pub(crate) struct Slabs {
    partial: [*mut Slab; CLASS_COUNT],
    /// Slabs of each class.
    counts: [u32; CLASS_COUNT],
}

// SAFETY: the memory behind the addresses belongs to the slabs, on whichever processor their lock is held.
unsafe impl Send for Slabs {}

/// Bytes of an object of `class` and its header.
const fn stride(class: SizeClass) -> usize {
    class.layout().size() + HEADER_BYTES
}

/// A block for a slab of so many objects of `class`.
const fn layout_for(class: SizeClass, object_count: usize) -> Layout {
    layout_of(size_of::<Slab>() + object_count * stride(class))
}

/// A block for a slab with one object of `class`.
pub(crate) const fn least_slab_layout(class: SizeClass) -> Layout {
    layout_for(class, 1)
}

const fn layout_of(bytes: usize) -> Layout {
    match Layout::from_size_align(bytes, SLAB_ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("few bytes, and a power of two"),
    }
}

impl Slabs {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self { partial: [null_mut(); CLASS_COUNT], counts: [0; CLASS_COUNT] }
    }

    /// A block for the next slab of `class`.
    pub(crate) fn next_layout(&self, class: SizeClass) -> Layout {
        let most = SLAB_BYTES_MAX.max(4 * stride(class));
        let room = most - HEADER_BYTES - size_of::<Slab>();
        let slab_count = self.counts[class.index()];
        layout_for(class, (room / stride(class)).min(2 << slab_count.min(8)))
    }

    /// An object of `class`, of a slab that has one.
    #[inline]
    pub(crate) fn take(&mut self, class: SizeClass) -> Option<NonNull<u8>> {
        let first = *self.partial.get(class.index())?;
        // SAFETY: what is linked is a slab, which its lock makes this processor's alone.
        let slab = unsafe { first.as_mut()? };
        let object = if slab.returned.is_null() {
            let header = slab.fresh;
            // SAFETY: an object is free and none came back, so the fresh ones are not at their end; a header and its
            // object lie within the slab, at a multiple of 16.
            unsafe {
                slab.fresh = header.add(stride(class));
                header.cast::<*mut Slab>().write(first);
                header.add(HEADER_BYTES)
            }
        } else {
            let object = slab.returned;
            // SAFETY: an object that came back has the address of the next one.
            slab.returned = unsafe { object.cast::<*mut u8>().read() };
            object
        };
        slab.free_count -= 1;
        if slab.free_count == 0 {
            // SAFETY: it is the first of its class.
            unsafe { self.unlink(first) };
        }
        NonNull::new(object)
    }

    /// Makes a block a slab of `class`.
    ///
    /// # Safety
    /// The block is the caller's, as long and aligned as [`Self::next_layout`] or [`least_slab_layout`] says for the
    /// class, of which `bytes` is the size, and not used by anybody until [`Self::give`] returns it.
    pub(crate) unsafe fn add(&mut self, class: SizeClass, block: NonNull<u8>, bytes: usize) {
        let object_count = ((bytes - size_of::<Slab>()) / stride(class)) as u32;
        let slab = block.as_ptr().cast::<Slab>();
        // SAFETY: by the contract there is room for a slab and that many objects behind it.
        unsafe {
            let fresh = block.as_ptr().add(size_of::<Slab>());
            let (next, previous, returned) = (null_mut(), null_mut(), null_mut());
            slab.write(Slab { next, previous, returned, fresh, free_count: object_count, object_count, class });
            self.link(slab);
        }
        self.counts[class.index()] += 1;
    }

    /// Takes an object back; the block of its slab, if none of its objects is used any more.
    ///
    /// # Safety
    /// It came from [`Self::take`], and nobody uses it.
    pub(crate) unsafe fn give(&mut self, object: NonNull<u8>) -> Option<NonNull<u8>> {
        let object = object.as_ptr();
        // SAFETY: the header before an object has the address of its slab, which lives while an object is used.
        let address = unsafe { object.sub(HEADER_BYTES).cast::<*mut Slab>().read() };
        // SAFETY: as above, and the lock makes it this processor's alone.
        let slab = unsafe { &mut *address };
        // SAFETY: nobody uses the object, which is longer than an address.
        unsafe { object.cast::<*mut u8>().write(slab.returned) };
        slab.returned = object;
        slab.free_count += 1;
        let (is_first, is_last) = (slab.free_count == 1, slab.free_count == slab.object_count);
        if is_first && !is_last {
            // SAFETY: it had no free object, so it was not linked.
            unsafe { self.link(address) };
        }
        if !is_last {
            return None;
        }
        if !is_first {
            // SAFETY: it had a free object, so it was linked.
            unsafe { self.unlink(address) };
        }
        self.counts[slab.class.index()] -= 1;
        NonNull::new(address.cast())
    }

    /// # Safety
    /// A slab that is not linked.
    unsafe fn link(&mut self, address: *mut Slab) {
        // SAFETY: it is a slab, and its class is one.
        let slab = unsafe { &mut *address };
        let Some(first) = self.partial.get_mut(slab.class.index()) else { return };
        (slab.next, slab.previous) = (*first, null_mut());
        // SAFETY: what is linked is a slab, and not this one.
        if let Some(next) = unsafe { first.as_mut() } {
            next.previous = address;
        }
        *first = address;
    }

    /// # Safety
    /// A slab that is linked.
    unsafe fn unlink(&mut self, address: *mut Slab) {
        // SAFETY: it is a slab; its neighbours are others.
        let (slab, next, previous) = unsafe {
            let slab = &*address;
            (slab, slab.next.as_mut(), slab.previous.as_mut())
        };
        if let Some(next) = next {
            next.previous = slab.previous;
        }
        match (previous, self.partial.get_mut(slab.class.index())) {
            (Some(previous), _) => previous.next = slab.next,
            (None, Some(first)) => *first = slab.next,
            (None, None) => {}
        }
    }
}
