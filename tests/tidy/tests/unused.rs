//! What the product makes for others to use, the product uses. The compiler says so of what is private; of what is `pub` it cannot, since
//! some other crate might use it. By name alone: two things of one name hide each other.

use levee_tidy::{Source, none, tree};
use std::collections::{BTreeSet, HashMap};

/// Items that tests alone use, each with its reason.
const FOR_TESTS: [(&str, &str); 4] = [
    (
        "AhInbound",
        "a mechanism that COVERAGE lists (B2): Linux's stack is its peer in a test, and no vault speaks it",
    ),
    ("AhOutbound", "the same"),
    ("protect_in_tunnel", "the same"),
    ("verify_in_tunnel", "the same"),
];

/// The words of a line of code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The name of the item that begins on this line, where others can see it.
fn public_item(line: &str) -> Option<&str> {
    let mut words = words(line.strip_prefix("pub")?)
        .skip_while(|word| ["crate", "super", "in", "async", "unsafe", "extern", "C"].contains(word));
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
    let first = words.next().filter(|word| kinds.contains(word))?;
    words.find(|word| first != "const" || !["fn", "unsafe"].contains(word))
}

/// A line without the type whose `impl` begins there: what is only implemented is not used.
fn without_own_type(line: &str) -> &str {
    let own = |rest: &'_ str| rest.find(['<', ' ', '{']).unwrap_or(rest.len());
    match (line.strip_prefix("impl "), line.split_once(" for ")) {
        (Some(_), Some((of, _))) => of,
        (Some(rest), None) => rest.get(own(rest)..).unwrap_or_default(),
        (None, _) => line,
    }
}

#[test]
fn what_others_may_use_is_used_by_the_product() {
    let all = tree();
    let product = || all.iter().filter(|f| f.is_rust() && !f.is_of_tests() && !f.path.starts_with("fuzz/"));
    let lines = |file: &Source| {
        let code: Vec<String> = file.code().map(|line| line.trim().to_owned()).collect();
        code.into_iter().filter(|line| !line.starts_with("//")).collect::<Vec<_>>()
    };
    let (mut items, mut uses) = (Vec::new(), HashMap::<String, usize>::new());
    for file in product() {
        for line in lines(file) {
            let item = public_item(&line);
            items.extend(item.map(|name| (file.path.clone(), name.to_owned())));
            let mut here: Vec<&str> = words(without_own_type(&line)).collect();
            // The definition itself is no use.
            if let Some(at) = item.and_then(|name| here.iter().position(|word| *word == name)) {
                here.remove(at);
            }
            here.into_iter().for_each(|word| *uses.entry(word.to_owned()).or_default() += 1);
        }
    }
    assert!(items.len() > 4000, "{} items", items.len());
    let unused: BTreeSet<&(String, String)> =
        items.iter().filter(|(_, name)| !uses.contains_key(name)).collect();
    let is_named = |name: &str| FOR_TESTS.iter().any(|(item, _)| *item == name);
    let lost = unused.iter().filter(|(_, name)| !is_named(name));
    let lost = lost.map(|(path, name)| format!("{path}: nothing but tests uses {name}"));
    let is_unused = |name: &str| unused.iter().any(|(_, other)| other == name);
    let done = FOR_TESTS.iter().filter(|(name, _)| !is_unused(name));
    let done = done.map(|(name, _)| format!("{name}: no exception is needed any more"));
    none(&lost.chain(done).collect::<Vec<_>>());
}
