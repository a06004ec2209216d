//! Moves the bytes of allocations between the GPU and where they are saved.
