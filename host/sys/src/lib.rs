//! What only unsafe code can do.
