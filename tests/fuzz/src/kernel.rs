//! The programs that a labelled link's kernel is given, for any domain, link and compartment: that each is a whole program, and
//! that its tables say what the codecs say.
//!
//! Input: the domain's number and form, the link's MTU, a mark, and then three bytes for each category: ours, and its number there.

use levee_labelled::kernel::{
    Carries, Instruction, LOAD_WIDE, MAP, OPTION, SIX_HEADER, compartment, egress, ingress, padded,
    six_written, written,
};
use levee_labelled::{calipso, cipso, spellings};
use levee_policy::{CategorySet, Domain, Label, TagForm};

/// `BPF_MAXINSNS` of linux/bpf_common.h.
const MOST: usize = 4_096;

/// Every jump leads to an instruction and not into the middle of one; a program ends with its exit. That it ends is the kernel's to prove.
fn check(program: &[Instruction]) {
    assert!((1..=MOST).contains(&program.len()), "{} instructions", program.len());
    assert_eq!(program.last().map(|last| last.code), Some(0x95), "it leaves");
    let mut middle = vec![false; program.len()];
    for (at, instruction) in program.iter().enumerate() {
        if !middle[at] && instruction.code == LOAD_WIDE {
            middle[at + 1] = true;
            assert!(instruction.source != MAP || (0..10).contains(&instruction.value), "a map that there is");
        }
    }
    for (at, instruction) in program.iter().enumerate().filter(|(at, _)| !middle[*at]) {
        assert!(instruction.destination <= 10 && instruction.source <= 10, "{at}: {instruction:?}");
        let class = instruction.code & 7;
        let jumps = class == 5 && ![0x85, 0x95].contains(&instruction.code);
        if jumps {
            let to =
                (at + 1).checked_add_signed(isize::from(instruction.offset)).expect("not before the first");
            assert_eq!(middle.get(to), Some(&false), "{at}: {instruction:?}");
        }
        // The frame's own register is read alone, but as the base of a store.
        assert!(!matches!(class, 4 | 7 | 1) || instruction.destination != 10, "{at}: {instruction:?}");
        let memory = matches!(class, 1..=3);
        let stack = memory && (if class == 1 { instruction.source } else { instruction.destination }) == 10;
        assert!(!stack || (-512..0).contains(&instruction.offset), "{at}: {instruction:?}");
    }
}

/// A label's entries in the tables say what the codecs say.
fn tables(domain: &Domain, label: &Label) {
    if let Ok(option) = cipso::encode(domain, label) {
        let entry = written(&option).expect("it fits");
        assert_eq!(entry[..4], u32::try_from(option.len().next_multiple_of(4)).expect("short").to_ne_bytes());
        assert_eq!(entry[4..4 + option.len()], option);
        assert!(entry[4 + option.len()..].iter().all(|octet| *octet == 0));
        assert_eq!(padded::<OPTION>(&option).map(|padded| padded.to_vec()), Some(entry[4..].to_vec()));
        for spelling in spellings(domain, label).into_iter().flatten() {
            assert_eq!(cipso::decode(domain, &spelling).as_ref(), Ok(label));
        }
    }
    if let Ok(option) = calipso::encode(domain, label) {
        let entry = six_written(&option).expect("it fits");
        let length = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]) as usize;
        assert!(length.is_multiple_of(8) && length <= SIX_HEADER && length >= 2 + option.len());
        assert_eq!(entry[6..6 + option.len()], option);
        assert_eq!(usize::from(entry[5]), length / 8 - 1);
    }
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let Some((&[a, b, c, d, form, m0, m1, m2, m3, k0, k1, k2, k3, level], rest)) =
        input.split_first_chunk::<14>()
    else {
        return;
    };
    let form = TagForm::ALL[usize::from(form) % TagForm::ALL.len()].1;
    let (mtu, mark) = (u32::from_be_bytes([m0, m1, m2, m3]), u32::from_be_bytes([k0, k1, k2, k3]));
    let (categories, _) = rest.as_chunks::<3>();
    let pairs =
        categories.iter().map(|[ours, high, low]| (u16::from(*ours), u16::from_be_bytes([high & 3, *low])));
    let pairs: Vec<(u16, u16)> = pairs.take(64).collect();
    let doi = u32::from_be_bytes([a, b, c, d]);
    let every = [(false, false), (false, true), (true, false), (true, true)];
    let every = every.map(|(six, unlabelled)| Carries { six, unlabelled });
    for carries in every {
        for program in [egress(mtu, carries), compartment(mark, mtu, carries.six)].into_iter().flatten() {
            check(&program);
        }
    }
    let Some(domain) = Domain::new(doi, form, [(0, level)], pairs.iter().copied()) else { return };
    for carries in every {
        check(&ingress(&domain, carries).expect("there is no domain without a program"));
    }
    let ours = pairs.iter().map(|(ours, _)| *ours);
    if let Some(all) = CategorySet::from_numbers(ours) {
        tables(&domain, &Label::confidential(0, all));
    }
    tables(&domain, &Label::confidential(0, CategorySet::empty()));
}
