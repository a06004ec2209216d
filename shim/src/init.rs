//! What runs when the library is loaded: the first life of the process begins, and nothing else happens.

use crate::generation;

/// The loader calls this before the program's own constructors, but after those of libraries it needs.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = {
    extern "C" fn init() {
        generation::settle();
    }
    init
};
