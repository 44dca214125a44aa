//! The pages of a program's code that are in its memory.

/// Gives back the code that only the start needed, such as the linker's: what is needed again comes back from the file, page by
/// page. The pages are the file's, so this frees nothing that others use; but an idle daemon's resident memory is then what
/// its work needs. Where `/proc` cannot be read, everything stays as it is.
pub fn give_back() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else { return };
    for (start, length) in mappings(&maps) {
        // SAFETY: the range is one mapping of this process as the kernel has just listed it: of a file, private, executable,
        // not writable, and without a page that differs from the file's (none anonymous). Every page that goes comes back from
        // the file with the same bytes at the next access. Nothing unmaps or writes code here: programs are linked at the
        // start, and no daemon loads more.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
    }
}

/// Address and length of each mapping in this text of `/proc/PID/smaps` that is a file's code as it stands in the file.
fn mappings(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut code = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some(kibibytes)) => found.extend(code.take().filter(|_| kibibytes == "0")),
            (Some(range), Some(permissions)) if !range.ends_with(':') => {
                let of_file = words.nth(2).is_some_and(|inode| inode != "0");
                code = bounds(range).filter(|_| permissions == "r-xp" && of_file);
            }
            _ => {}
        }
    }
    found
}

fn bounds(range: &str) -> Option<(usize, usize)> {
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_files_unaltered_code_is_found() {
        let text = "\
1000-2000 r--p 00000000 fe:00 7 /bin/program
Rss: 4 kB
Anonymous: 0 kB
2000-5000 r-xp 00001000 fe:00 7 /bin/program
Rss: 12 kB
Anonymous: 0 kB
VmFlags: rd ex mr mw me
6000-7000 r-xp 00001000 fe:00 8 /lib/with relocations.so
Anonymous: 4 kB
8000-9000 r-xs 00000000 fe:00 9 /shared
Anonymous: 0 kB
9000-a000 r-xp 00000000 00:00 0 [vdso]
Anonymous: 0 kB
a000-b000 rwxp 00000000 fe:00 9 /writable
Anonymous: 0 kB
b000-c000 r-xp 00000000 fe:00 9 /the/list/ends/here
";
        assert_eq!(mappings(text), [(0x2000, 0x3000)]);
    }

    #[test]
    fn code_goes_and_comes_back() {
        let resident = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut code = false;
            let mut sum = 0;
            for line in maps.lines() {
                if let Some(rss) = line.strip_prefix("Rss:") {
                    sum += if code { rss.trim_end_matches("kB").trim().parse::<usize>().unwrap() } else { 0 };
                } else if line.contains(" r-xp ") {
                    code = line.contains('/');
                } else if line.split(' ').next().is_some_and(|range| bounds(range).is_some()) {
                    code = false;
                }
            }
            sum
        };
        // Code that stays for the second look, and much that the first one alone has used.
        let before = resident();
        give_back();
        let after = resident();
        assert!(after < before, "{before} KiB of code before, {after} after");
        assert_eq!(mappings("nonsense\n"), []);
    }
}
