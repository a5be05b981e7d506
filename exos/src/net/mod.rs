//! Sockets, as policy of the library OS. So far [`unix`]; the other address families are not there.

pub mod unix;
