//! The worker with the driver linked in, as programs are that nvcc builds with `-lcuda`.

include!(concat!(env!("OUT_DIR"), "/linked.rs"));

fn main() {
    integration::driver::link(LINKED);
    integration::program::run();
}
