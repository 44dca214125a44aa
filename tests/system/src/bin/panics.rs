//! Starts a server, says its number, and panics without unwinding anything, as a program of a release build does: `tests/soak.rs` looks at what
//! is left then. Needs root, and levee's own programs beside it.
#![forbid(unsafe_code)]

use levee_system::{World, ends_what_it_started, host};

fn main() {
    ends_what_it_started();
    let ours = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        ours(what);
        std::process::abort();
    }));
    let mut world = World::new("panic", include_str!("../../../../conf/small/site.toml"), &[]);
    world.start_server();
    println!("{}", world.server_pid());
    panic!("the server runs: {}", host::below(world.server_pid()).len());
}
