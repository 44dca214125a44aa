//! levee-store: makes a label's images, so that the warden need not wait. It starts it; nobody else has a use for it.
//!
//! `levee-store [--machine PLACE KERNEL-ROOT PROGRAMS] [PATH BYTES]...`; status 0 once every image is there, and what a label's
//! virtual machine boots.
#![forbid(unsafe_code)]

use levee_warden::compartment::Store;
use levee_warden::machine::image::Recipe;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match make(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn make(arguments: &[String]) -> Result<(), String> {
    if let [flag, place, kernel_root, programs, images @ ..] = arguments
        && flag == "--machine"
    {
        let recipe = Recipe { kernel_root: kernel_root.into(), programs: programs.into() };
        recipe.make(Path::new(place))?;
        return if images.is_empty() { Ok(()) } else { make(images) };
    }
    if arguments.is_empty() || !arguments.len().is_multiple_of(2) {
        return Err("usage: levee-store PATH BYTES...".into());
    }
    for image in arguments.chunks(2) {
        let [path, bytes] = image else { continue };
        let bytes = bytes.parse().map_err(|e| format!("{bytes}: {e}"))?;
        Store::create(Path::new(path), bytes).map_err(|e| e.to_string())?;
    }
    Ok(())
}
