//! Labels and the lattice they form.
