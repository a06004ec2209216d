//! The worker, which finds the driver as cudart does, or by the road that its argument names.

fn main() {
    if let Some(road) = std::env::args().nth(1) {
        match road.parse() {
            Ok(road) => integration::driver::take(road),
            Err(error) => {
                println!("usage {error}");
                return;
            }
        }
    }
    integration::program::run();
}
