//! Enumerations whose values travel as numbers: each value and its number are written once.

/// Makes such an enumeration, with the way back from a number.
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident: $word:ty { $($(#[$doc:meta])* $value:ident = $number:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($word)]
        pub enum $name {
            $($(#[$doc])* $value = $number,)+
        }

        impl $name {
            /// The value of a number; `None` for one that this version does not know.
            #[must_use]
            pub const fn from_number(number: $word) -> Option<Self> {
                match number {
                    $($number => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use numbered;
