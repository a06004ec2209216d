//! The contexts of the process.
