//! What the verbs do.
