//! The colours of levels' banners.

use levee_policy::Site;
use levee_policy::site::Colour;

#[test]
fn where_no_colour_is_named_levels_go_from_green_to_red() {
    for (levels, colours) in [
        (1, vec![Colour::Green]),
        (2, vec![Colour::Green, Colour::Red]),
        (3, vec![Colour::Green, Colour::Magenta, Colour::Red]),
        (4, vec![Colour::Green, Colour::Blue, Colour::Yellow, Colour::Red]),
    ] {
        let names: Vec<String> = (0..levels).map(|level| format!("L{level}")).collect();
        let (first, last) = (&names[0], &names[levels - 1]);
        let range = if levels == 1 { first.clone() } else { format!("{first}..{last}") };
        let plain = Site::parse(&format!(
            "[site]\nname = \"plain\"\n[labels]\nlevels = {names:?}\n[server]\nname = \"s.example\"\naddresses = [\"192.0.2.1\"]\n\
             inner-address = \"10.80.0.1\"\ninner-pool = \"10.80.1.0/24\"\n[[user]]\nname = \"ada\"\nclearance = \"{range}\"\n\
             [[host]]\nname = \"ws1\"\naccreditation = \"{range}\"\n[[service]]\nname = \"web\"\nport = 80\nprotocol = \"tcp\"\n\
             range = \"{range}\"\nmode = \"direct\"\nprogram = \"nginx\"\n"
        ))
        .unwrap();
        let found: Vec<_> = names
            .iter()
            .map(|name| plain.colour(&plain.vocabulary().parse(name).unwrap()).unwrap())
            .collect();
        assert_eq!(found, colours);
    }
}
