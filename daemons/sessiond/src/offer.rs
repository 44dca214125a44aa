//! What a person may choose from once they have signed on: the labels themselves, or what labels are made of where they are many.

use levee_ipc::client::Lattice;
use levee_policy::{CategorySet, Class, HostName, Label, LabelName, Range, Site, UserName};

/// The most labels that a person is shown.
const MAX_LABELS: u64 = 256;
/// So many octets of names go into one message, beside which it has room for the rest.
const MAX_NAMES: usize = 12 * 1024;

/// Every label that this user may open on this host, or the ends of the range and its parts.
pub fn offer(site: &Site, user: &UserName, host: &HostName) -> (Vec<LabelName>, Option<Lattice>) {
    let octets = |labels: &[LabelName]| labels.iter().map(|label| label.as_str().len() + 2).sum::<usize>();
    let all = site.session_labels(user, host, MAX_LABELS);
    if let Some(all) = all.filter(|all| octets(all) <= MAX_NAMES) {
        return (all, None);
    }
    let Some(range) = site.session_range(user, host) else { return (Vec::new(), None) };
    let ends = [range.low(), range.high()];
    (ends.into_iter().filter_map(|label| site.label_name(label)).collect(), Some(lattice(site, &range)))
}

fn lattice(site: &Site, range: &Range) -> Lattice {
    let (low, high) = (&range.low().confidentiality, &range.high().confidentiality);
    // A label's name less what was put there to make it one.
    let name = |level, categories: CategorySet, integrity: &Class| {
        let label = Label::new(Class::new(level, categories), integrity.clone());
        site.label_name(&label).map(|name| name.to_string())
    };
    let class = |whole: String| whole.split('@').next().unwrap_or_default().to_owned();
    let integrity = &range.low().integrity;
    let levels = (low.level..=high.level)
        .filter_map(|level| name(level, CategorySet::empty(), integrity))
        .map(class)
        .collect();
    let named = |set: &CategorySet| -> Vec<String> {
        let one = |category: u16| {
            let whole = name(high.level, CategorySet::from_numbers([category])?, integrity)?;
            Some(class(whole).split_once("//")?.1.to_owned())
        };
        set.iter().filter_map(one).collect()
    };
    let (clean, rough) = (&range.low().integrity, &range.high().integrity);
    let integrity = match clean.categories == rough.categories {
        // The names of the levels alone would not be names of integrities.
        true => (rough.level..=clean.level)
            .rev()
            .filter_map(|level| {
                let label = Label::new(low.clone(), Class::new(level, clean.categories.clone()));
                Some(
                    site.label_name(&label)?
                        .as_str()
                        .split_once('@')
                        .map_or("", |(_, after)| after)
                        .to_owned(),
                )
            })
            .collect(),
        // Subsets of both: they are typed.
        false => vec![],
    };
    let mut lattice = Lattice {
        count: range.count().unwrap_or(u64::MAX),
        levels,
        categories: named(&high.categories),
        needed: named(&low.categories),
        integrity,
    };
    let parts = [&lattice.levels, &lattice.categories, &lattice.needed, &lattice.integrity];
    let octets: usize = parts.into_iter().flatten().map(|name| name.len() + 2).sum();
    if octets > MAX_NAMES || lattice.integrity.is_empty() {
        // Then labels are typed.
        lattice = Lattice { count: lattice.count, ..Lattice::default() };
    }
    lattice
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The small site with more categories, which everybody and everything that had all has too.
    fn site(more: usize, length: usize) -> Site {
        let names: String = (0..more).map(|number| format!(",C{number:0>length$}")).collect();
        let declared: String = names.split(',').skip(1).map(|name| format!(", \"{name}\"")).collect();
        let text = include_str!("../../../conf/small/site.toml")
            .replace("SECRET//NATO,MED", &format!("SECRET//NATO,MED{names}"))
            .replace("[\"NATO\", \"MED\"]", &format!("[\"NATO\", \"MED\"{declared}]"));
        Site::parse(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
    }

    #[test]
    fn a_person_is_offered_every_label_or_what_labels_are_made_of_and_never_more_than_a_message_holds() {
        let of = |site: &Site| offer(site, &"ada".parse().unwrap(), &"ws1".parse().unwrap());
        let (few, lattice) = of(&site(0, 3));
        assert!(few.len() > 2 && lattice.is_none(), "{few:?}");
        let (ends, lattice) = of(&site(10, 3));
        let lattice = lattice.unwrap();
        assert_eq!(ends.len(), 2, "{ends:?}");
        assert_eq!((lattice.levels.len(), lattice.categories.len(), lattice.needed.len()), (3, 12, 0));
        assert_eq!((lattice.count, lattice.levels[0].as_str()), (3 * 4_096, "UNCLASSIFIED"));
        assert_eq!(
            (lattice.categories[2].as_str(), lattice.integrity.as_slice()),
            ("C000", &[String::new()][..])
        );
        // Few labels of long names would be too much for one message: nobody could sign on.
        let (ends, lattice) = of(&site(4, 30));
        assert_eq!((ends.len(), lattice.map(|lattice| lattice.categories.len())), (2, Some(6)));
    }
    /// A site with so many levels of integrity, each with categories of so many octets, where a person may have any level.
    fn with_integrity(levels: usize, octets: usize) -> Site {
        let names: Vec<String> = (0..levels).map(|n| format!("I{n:0>29}")).collect();
        // Names have at most 32 letters, and a comma is between each two.
        let whole = octets / 20;
        let categories: Vec<String> = (0..whole).map(|n| format!("X{n:0>18}")).collect();
        let list =
            |names: &[String]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
        let all = categories.join(",");
        let range = format!("A@{}//{all}..B@{}//{all}", names[levels - 1], names[0]);
        Site::parse(&format!(
            "[site]\nname = \"x\"\n[labels]\nlevels = [\"A\", \"B\"]\nintegrity-levels = [{}]\nintegrity-categories = [{}]\n\
             [server]\nname = \"s.example\"\naddresses = [\"192.0.2.1\"]\ninner-address = \"10.80.0.1\"\ninner-pool = \"10.80.1.0/24\"\n\
             [[user]]\nname = \"ada\"\nclearance = \"{range}\"\n[[host]]\nname = \"ws1\"\naccreditation = \"{range}\"\n\
             [[service]]\nname = \"web\"\nport = 80\nprotocol = \"tcp\"\nrange = \"{range}\"\nmode = \"direct\"\nprogram = \"nginx\"\n",
            list(&names),
            list(&categories)
        ))
        .unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn what_labels_are_made_of_is_left_out_where_no_message_has_room_for_it_and_labels_are_typed() {
        let of = |site: &Site| offer(site, &"ada".parse().unwrap(), &"ws1".parse().unwrap());
        // Each integrity is told whole, with its categories: 30 octets, two, ten times 19 and nine commas, and two of the message's own.
        let each = 30 + 2 + 10 * 19 + 9 + 2;
        let ends = 2 * (1 + 2);
        let most = (MAX_NAMES - ends) / each;
        for (levels, fits) in [(most, true), (most + 1, false), (200, false)] {
            let (offered, lattice) = of(&with_integrity(levels, 200));
            // So few labels, of names so long, are too much as well.
            assert_eq!(offered.len(), 2);
            let lattice = lattice.unwrap();
            assert_eq!(lattice.count, 2 * levels as u64);
            assert_eq!(lattice.integrity.len(), if fits { levels } else { 0 }, "{levels}");
            assert_eq!(lattice.levels.len(), if fits { 2 } else { 0 });
        }
    }
}
