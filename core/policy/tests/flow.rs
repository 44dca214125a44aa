//! The flow by channels against the plainest statement of it, for every set of up to four channels between four places of
//! every choice of labels; and how a site file with a forbidden flow is told of it.

use levee_policy::flow::{Passage, Step, forbidden};
use levee_policy::site::ProblemKind;
use levee_policy::{CategorySet, Label, Site};

/// The four points of the smallest lattice that is no chain.
fn diamond() -> [Label; 4] {
    let of = |numbers: &[u16]| CategorySet::from_numbers(numbers.iter().copied()).unwrap();
    [of(&[]), of(&[0]), of(&[1]), of(&[0, 1])].map(|categories| Label::confidential(0, categories))
}

/// The length of the shortest simple path that breaks the rule, by trying every one of them.
fn by_hand(labels: &[Label; 4], steps: &[Step]) -> Option<usize> {
    fn may(from: &Label, to: &Label, labels: &[Label; 4], steps: &[Step]) -> bool {
        let mut may = to.dominates(from);
        for guard in steps {
            let excepted = labels[guard.from].dominates(from) && to.dominates(&labels[guard.to]);
            may |= guard.passage == Passage::Guard && excepted;
        }
        may
    }
    fn walk(path: &mut Vec<usize>, labels: &[Label; 4], steps: &[Step], least: &mut Option<usize>) {
        let at = *path.last().unwrap();
        if !may(&labels[path[0]], &labels[at], labels, steps) {
            let length = path.len() - 1;
            *least = Some(least.map_or(length, |least| least.min(length)));
        }
        for step in steps {
            if step.from == at && !path.contains(&step.to) {
                path.push(step.to);
                walk(path, labels, steps, least);
                path.pop();
            }
        }
    }
    let mut least = None;
    for start in 0..4 {
        walk(&mut vec![start], labels, steps, &mut least);
    }
    least
}

/// Calls `try_it` with every set of at most `left` of `all`.
fn subsets(all: &[Step], left: usize, chosen: &mut Vec<Step>, try_it: &mut impl FnMut(&[Step])) {
    try_it(chosen);
    if left == 0 {
        return;
    }
    for (at, step) in all.iter().enumerate() {
        chosen.push(*step);
        subsets(&all[at + 1..], left - 1, chosen, try_it);
        chosen.pop();
    }
}

#[test]
fn for_every_site_of_four_labels_and_four_channels_a_forbidden_flow_is_found_and_no_other() {
    let points = diamond();
    let mut all = Vec::new();
    for passage in [Passage::OneWay, Passage::Guard] {
        let ends = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to);
        all.extend(ends.map(|(from, to)| Step { from, to, passage }));
    }
    assert_eq!(all.len(), 24);
    let (mut sites, mut refused, mut longest) = (0u32, 0u32, 0);
    // Which places have which labels, but for their order, which changes nothing.
    for a in 0..4 {
        for b in a..4 {
            for c in b..4 {
                for d in c..4 {
                    let labels = [a, b, c, d].map(|at: usize| points[at].clone());
                    subsets(&all, 4, &mut Vec::new(), &mut |steps| {
                        let found = forbidden(&labels, steps);
                        assert_eq!(
                            found.as_ref().map(Vec::len),
                            by_hand(&labels, steps),
                            "{labels:?} {steps:?}"
                        );
                        sites += 1;
                        refused += u32::from(found.is_some());
                        let Some(way) = found else { return };
                        longest = longest.max(way.len());
                        // It is a way, each step from where the last one led.
                        assert!(way.windows(2).all(|two| steps[two[0]].to == steps[two[1]].from));
                    });
                }
            }
        }
    }
    // 35 choices of labels; 1 + 24 + 276 + 2,024 + 10,626 sets of channels.
    assert_eq!(sites, 35 * 12_951);
    assert!(refused > 0 && refused < sites && longest >= 2, "{refused} {longest}");
}

#[test]
fn of_forbidden_ways_as_short_the_first_places_is_shown() {
    let [bottom, _, _, top] = diamond();
    let step = |from, to| Step { from, to, passage: Passage::OneWay };
    let places = [top.clone(), top, bottom];
    assert_eq!(forbidden(&places, &[step(1, 2), step(0, 2)]), Some(vec![1]));
    assert_eq!(
        forbidden(&places, &[step(1, 2), step(0, 1)]),
        Some(vec![0]),
        "the shorter one of a later place"
    );
}

/// Three labels, a partition at each and one more, with these channels.
fn site(channels: &[(&str, &str, &str)]) -> Result<Site, Vec<levee_policy::Problem>> {
    let mut text = r#"
site = { name = "harbour" }
labels = { levels = ["LOW", "MID", "HIGH"] }
[server]
name = "server.harbour.example"
addresses = ["192.0.2.1"]
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
"#
    .to_owned();
    let places = [("field", "LOW"), ("bridge", "MID"), ("filter", "MID"), ("staff", "HIGH")];
    for (name, label) in places {
        text +=
            &format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/bin/true\"]\n");
    }
    for (number, (kind, from, to)) in channels.iter().enumerate() {
        text += &format!(
            "[[channel]]\nname = \"c{number}\"\nkind = \"{kind}\"\nfrom = \"{from}\"\nto = \"{to}\"\n"
        );
        if *kind == "guard" {
            // Each has a filter of its own, at the label of what it sees.
            let label = places.iter().find(|(name, _)| name == from).map_or("LOW", |(_, label)| label);
            let filter = format!("name = \"own{number}\"\nlabel = \"{label}\"\ncommand = [\"/bin/true\"]\n");
            text += &format!("filter = \"own{number}\"\nmessages = \"9 in 60s\"\n[[partition]]\n{filter}");
        }
    }
    Site::parse(&text)
}

fn told(channels: &[(&str, &str, &str)]) -> Vec<(ProblemKind, String)> {
    site(channels).unwrap_err().into_iter().map(|problem| (problem.kind, problem.what)).collect()
}

#[test]
fn a_site_whose_channels_lead_upwards_or_within_a_label_is_sound() {
    let site = site(&[
        ("oneway", "field", "bridge"),
        ("oneway", "bridge", "filter"),
        ("oneway", "filter", "bridge"),
        ("oneway", "bridge", "staff"),
        ("guard", "filter", "field"),
    ])
    .unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!((site.partitions().len(), site.channels().len()), (5, 5));
}

#[test]
fn a_channel_downwards_without_a_guard_is_refused_at_its_place() {
    let told = told(&[("oneway", "staff", "field")]);
    let way = "information gets where the lattice forbids it: staff (HIGH) -[c0]-> field (LOW)";
    assert_eq!(told, [(ProblemKind::Flow, way.to_owned())]);
}

#[test]
fn two_guards_in_a_row_are_an_exception_that_nobody_declared_and_the_way_is_shown() {
    let cascade =
        [("guard", "staff", "bridge"), ("oneway", "bridge", "filter"), ("guard", "filter", "field")];
    let way = "information gets where the lattice forbids it: \
               staff (HIGH) -[c0]-> bridge (MID) -[c1]-> filter (MID) -[c2]-> field (LOW)";
    assert_eq!(told(&cascade), [(ProblemKind::Flow, way.to_owned())]);
    // Declared as a whole it is the site's to answer for.
    let declared = [cascade[0], cascade[1], cascade[2], ("guard", "staff", "field")];
    assert!(site(&declared).is_ok());
}

#[test]
fn a_channel_to_nowhere_to_itself_or_that_is_no_exception_is_told() {
    let kinds = |channels| told(channels).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    assert_eq!(kinds(&[("oneway", "feild", "staff")]), [ProblemKind::UnknownName]);
    assert_eq!(kinds(&[("oneway", "field", "field")]), [ProblemKind::BadValue]);
    assert_eq!(kinds(&[("guard", "field", "staff")]), [ProblemKind::BadValue]);
    assert_eq!(kinds(&[("sideways", "field", "staff")]), [ProblemKind::UnknownName]);
}
