//! levee-store: makes a label's images, so that the warden need not wait. It starts it, as nobody in particular; nobody else has a use
//! for it.
//!
//! `levee-store [--machine PLACE KERNEL-ROOT PROGRAMS] [BYTES]...`, with an empty file for each size as descriptors 3, 4, …; status 0
//! once in every file is a store, and what a label's virtual machine boots is there.
#![forbid(unsafe_code)]

use levee_sys::fork::inherited;
use levee_warden::compartment::fill;
use levee_warden::machine::image::Recipe;
use levee_warden::maker;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let made = match arguments.as_slice() {
        [flag, place, kernel_root, programs, sizes @ ..] if flag == "--machine" => {
            let recipe = Recipe { kernel_root: kernel_root.into(), programs: programs.into() };
            make(Some((&recipe, Path::new(place))), sizes)
        }
        sizes => make(None, sizes),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn make(boot: Option<(&Recipe, &Path)>, sizes: &[String]) -> Result<(), String> {
    let image = |(number, size): (i32, &String)| {
        let bytes: u64 = size.parse().map_err(|e| format!("{size}: {e}"))?;
        let file = inherited(number).map_err(|e| format!("no file for {size} bytes: {e}"))?;
        Ok((File::from(file), bytes))
    };
    let images = (3..).zip(sizes).map(image).collect::<Result<Vec<_>, String>>()?;
    let cache = boot.map(|(_, place)| File::open(place.parent().unwrap_or(place))).transpose();
    let cache = cache.map_err(|e| format!("open the directory of machines: {e}"))?;
    let written: Vec<_> =
        images.iter().map(|(file, _)| file.as_fd()).chain(cache.iter().map(AsFd::as_fd)).collect();
    let read = boot.map_or_else(Vec::new, |(recipe, _)| recipe.reads());
    maker::confine(&read, &written)?;
    if let Some((recipe, place)) = boot {
        recipe.make(place)?;
    }
    images.iter().try_for_each(|(file, bytes)| fill(file, *bytes)).map_err(|e| e.to_string())
}
