//! `[[processors]]`: whose each is; what two would have is refused.

use levee_policy::Site;

const SOUND: &str = include_str!("../../../conf/small/site.toml");

fn site(more: &str) -> Result<Site, String> {
    Site::parse(&format!("{SOUND}\n{more}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn table(numbers: &str, labels: &str) -> String {
    format!("[[processors]]\nnumbers = \"{numbers}\"\nlabels = [{labels}]\n")
}

#[test]
fn a_label_has_the_processors_that_name_it_and_all_others_have_none_for_themselves() {
    let site =
        site(&(table("2-3,6", "\"SECRET\"") + &table("0", "\"CONFIDENTIAL..CONFIDENTIAL//NATO,MED\"")))
            .unwrap();
    let of = |label: &str| {
        let label = site.vocabulary().parse(label).unwrap();
        site.processors_of(&label).map(|own| own.numbers().iter().copied().collect::<Vec<_>>())
    };
    assert_eq!(of("SECRET"), Some(vec![2, 3, 6]));
    assert_eq!(of("CONFIDENTIAL//MED"), Some(vec![0]));
    assert_eq!(of("SECRET//NATO"), None);
    assert_eq!(of("UNCLASSIFIED"), None);
}

#[test]
fn what_is_no_list_of_processors_and_what_two_would_have_is_refused() {
    let secret = "\"SECRET\"";
    for (more, said) in [
        (table("", secret), "is not a valid list of processors"),
        (table("3-2", secret), "is not a valid list of processors"),
        (table("8192", secret), "is not a valid list of processors"),
        (table("1", ""), "are of no label"),
        (table("1", "\"SECRETS\""), "SECRETS"),
        (table("1", secret) + &table("0-4", "\"CONFIDENTIAL\""), "processor 1 is in two"),
        (table("1", secret) + &table("2", "\"UNCLASSIFIED..SECRET//NATO,MED\""), "a label is in two"),
        ("[[processors]]\nnumbers = \"1\"\n".to_owned(), "`labels`"),
        ("[[processors]]\nlabels = [\"SECRET\"]\n".to_owned(), "`numbers`"),
    ] {
        let told = site(&more).err().unwrap_or_else(|| panic!("{more} is taken"));
        assert!(told.contains(said), "{more}: {told}");
    }
}

#[test]
fn a_label_with_processors_of_its_own_needs_no_slot() {
    let frames = "[frames]\n[[frames.slot]]\nlabels = [\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\", \"SECRET//NATO,MED\"]\ntime = \"5ms\"\n";
    let partition = "[[partition]]\nname = \"p\"\nlabel = \"SECRET\"\ncommand = [\"/bin/true\"]\nmemory = \"16M\"\ndisk = \"8M\"\n";
    let all = format!("{frames}{partition}");
    assert!(site(&all).unwrap_err().contains("no slot is for SECRET"));
    site(&(all + &table("1", "\"SECRET\""))).unwrap();
}

#[test]
fn labels_that_share_processors_need_slots_as_all_others_do() {
    let frames = "[frames]\n[[frames.slot]]\nlabels = [\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\", \"SECRET//NATO,MED\"]\ntime = \"5ms\"\n";
    let partition = "[[partition]]\nname = \"p\"\nlabel = \"SECRET\"\ncommand = [\"/bin/true\"]\nmemory = \"16M\"\ndisk = \"8M\"\n";
    for labels in ["\"SECRET\", \"SECRET//NATO\"", "\"SECRET..SECRET//NATO\""] {
        let shared = site(&format!("{frames}{partition}{}", table("1", labels)));
        assert!(shared.unwrap_err().contains("no slot is for SECRET"), "{labels}");
        let shared = site(&table("1", labels)).unwrap();
        let secret = shared.vocabulary().parse("SECRET").unwrap();
        assert!(shared.processors_of(&secret).is_some() && !shared.runs_apart(&secret));
    }
    let alone = site(&table("1", "\"SECRET\"")).unwrap();
    assert!(alone.runs_apart(&alone.vocabulary().parse("SECRET").unwrap()));
}
