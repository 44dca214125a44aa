//! Every message that one process takes from another is one that the fuzz target `ipc_message` reads.
//!
//! What can be read from octets derives `Deserialize`. So each type of the programs' that does is named in the target, or lies in one
//! that is; those that come from elsewhere are listed here.

use levee_tidy::{Source, none, tree};
use std::collections::{BTreeMap, BTreeSet};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

const TARGET: &str = "tests/fuzz/src/ipc_message.rs";

/// Where messages and their types are. What `core` has is in them.
const PLACES: [&str; 5] = ["cli/src/", "daemons/", "host/daemon/src/", "host/ipc/src/", "tpe/src/"];

/// Files whose types do not come over a channel, and what does read them.
const ELSEWHERE: [(&str, &str); 7] = [
    ("cli/src/pin.rs", "the owner's own file"),
    ("daemons/fsd/src/etcd.rs", "the fuzz target `etcd`"),
    ("daemons/warden/src/behind.rs", "a workstation's file: the fuzz target `site_file`"),
    ("daemons/warden/src/gateway.rs", "a gateway's file"),
    ("daemons/warden/src/rules/inside.rs", "what `nft` prints"),
    ("daemons/warden/src/workstation.rs", "a workstation's file: the fuzz target `site_file`"),
    ("tpe/src/doctor/finding.rs", "a workstation's file"),
];

/// What takes a message of the type that it is given.
const TAKES: [&str; 7] = ["decode", "hear", "hear_with", "receive", "recv", "take", "try_recv"];

/// Names, the last one a type's.
type Path = Vec<String>;

/// A type that is read from octets, by its file and name.
type Key = (String, String);

/// What is read of a file.
#[derive(Default)]
struct File {
    /// Types that are read from octets, with the types that they are made of.
    wire: BTreeMap<String, BTreeSet<Path>>,
    /// Of these, other names for types.
    aliases: BTreeSet<String>,
    /// What is taken in so many words, as it is written there.
    taken: BTreeSet<String>,
    /// Whose orders and sayings there are: `Part`, and what it says.
    parts: BTreeSet<(String, String)>,
    /// Names that are made known here.
    uses: BTreeMap<String, Path>,
}

/// The paths of types in something.
#[derive(Default)]
struct Paths(BTreeSet<Path>);

/// Each name that something is written with.
#[derive(Default)]
struct Words(BTreeSet<Path>);

impl<'a> Visit<'a> for Words {
    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        self.0.insert(vec![segment.ident.to_string()]);
        visit::visit_path_segment(self, segment);
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        self.0.insert(path.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_type_path(self, path);
    }
}

/// As the target's macro is written, without spaces.
fn written(tokens: &impl quote::ToTokens) -> String {
    tokens.to_token_stream().to_string().replace(' ', "")
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|one| {
        let list = one.meta.require_list();
        one.path().is_ident("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn is_read(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|one| one.path().is_ident("derive") && written(&one.meta).contains("Deserialize"))
}

impl File {
    fn read(file: &Source) -> Self {
        let parsed = syn::parse_file(&file.text).unwrap_or_else(|e| panic!("{}: {e}", file.path));
        let mut own = Self::default();
        own.visit_file(&parsed);
        own
    }

    fn add_uses(&mut self, tree: &syn::UseTree, above: &[String]) {
        let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_uses(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_uses(tree, above)),
            syn::UseTree::Name(name) => drop(self.uses.insert(name.ident.to_string(), with(&name.ident))),
            syn::UseTree::Rename(name) => drop(self.uses.insert(name.rename.to_string(), with(&name.ident))),
            syn::UseTree::Glob(_) => {}
        }
    }

    /// A path as it is used here, with what it was made known by.
    fn whole(&self, path: &[String]) -> Path {
        let known = path.first().and_then(|first| self.uses.get(first));
        known.map_or_else(|| path.to_vec(), |known| [known, &path[1..]].concat())
    }

    fn add(&mut self, name: &syn::Ident, attributes: &[syn::Attribute], paths: Paths) {
        if is_read(attributes) {
            self.wire.insert(name.to_string(), paths.0);
        }
    }
}

impl<'a> Visit<'a> for File {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let mut paths = Paths::default();
        match item {
            syn::Item::Mod(one) if is_for_tests(&one.attrs) => return,
            syn::Item::Fn(one) if is_for_tests(&one.attrs) => return,
            syn::Item::Use(one) => self.add_uses(&one.tree, &[]),
            syn::Item::Struct(one) => {
                paths.visit_item_struct(one);
                self.add(&one.ident, &one.attrs, paths);
            }
            syn::Item::Enum(one) => {
                paths.visit_item_enum(one);
                self.add(&one.ident, &one.attrs, paths);
            }
            syn::Item::Type(one) => {
                paths.visit_item_type(one);
                self.wire.insert(one.ident.to_string(), paths.0);
                self.aliases.insert(one.ident.to_string());
            }
            syn::Item::Impl(one) => {
                let of = one.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
                let of = of.map(|segment| segment.ident.to_string()).unwrap_or_default();
                let name = written(&one.self_ty);
                if of == "Deserialize" {
                    let mut words = Words::default();
                    words.visit_item_impl(one);
                    let name = name.split('<').next().unwrap_or_default().to_owned();
                    self.wire.insert(name, words.0);
                } else if of == "Part" {
                    let says = one.items.iter().find_map(|item| match item {
                        syn::ImplItem::Type(says) if says.ident == "Says" => Some(written(&says.ty)),
                        _ => None,
                    });
                    self.parts.insert((name, says.expect("what it says")));
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if let (true, Some(of)) = (TAKES.contains(&call.method.to_string().as_str()), &call.turbofish) {
            self.taken.extend(of.args.iter().map(written));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The programs' files.
fn files() -> BTreeMap<String, File> {
    let all = tree();
    let own = all.iter().filter(|file| file.is_rust() && !file.is_of_tests());
    let own = own.filter(|file| PLACES.iter().any(|place| file.path.starts_with(place)));
    own.map(|file| (file.path.clone(), File::read(file))).collect()
}

/// The types of the target.
fn target() -> (File, Vec<syn::Type>) {
    let all = tree();
    let file = all.iter().find(|file| file.path == TARGET).expect("the target");
    let parsed = syn::parse_file(&file.text).expect("it is Rust");
    let types = parsed.items.iter().find_map(|item| match item {
        syn::Item::Macro(one) if one.mac.path.is_ident("types") => Some(one.mac.tokens.clone()),
        _ => None,
    });
    let types = Punctuated::<syn::Type, syn::Token![,]>::parse_terminated.parse2(types.expect("its types"));
    (File::read(file), types.expect("types").into_iter().collect())
}

/// The type that a path in a file means, of those that are read from octets; `Err`: more than one may be meant.
fn resolve(files: &BTreeMap<String, File>, file: &str, path: &[String]) -> Result<Option<Key>, String> {
    let (name, before) = path.split_last().expect("a path has a name");
    let mut meant: Vec<Key> = files
        .iter()
        .filter(|(_, file)| file.wire.contains_key(name))
        .map(|(path, _)| (path.clone(), name.clone()))
        .collect();
    if before.is_empty() {
        let own = meant.iter().find(|(path, _)| path == file).cloned();
        meant = own.map_or(meant, |own| vec![own]);
    } else if meant.len() > 1 {
        // Modules are files, or directories.
        let within = |path: &str, module: &String| {
            let module = module.strip_prefix("levee_").unwrap_or(module);
            ["crate", "self", "super"].contains(&module)
                || path.trim_end_matches(".rs").split('/').any(|part| part == module)
        };
        // The nearest one says most; a name may be handed on by those above.
        meant.retain(|(path, _)| before.last().is_some_and(|module| within(path, module)));
    }
    match meant.len() {
        0 | 1 => Ok(meant.pop()),
        _ => Err(format!("{file}: {} may be one of {meant:?}", path.join("::"))),
    }
}

/// These types, and all that they are made of.
fn reached(files: &BTreeMap<String, File>, first: Vec<Key>, problems: &mut Vec<String>) -> BTreeSet<Key> {
    let (mut all, mut new): (BTreeSet<Key>, _) = (first.iter().cloned().collect(), first);
    while let Some((path, name)) = new.pop() {
        let file = &files[&path];
        for of in file.wire[&name].iter().map(|of| file.whole(of)) {
            match resolve(files, &path, &of) {
                Ok(of) => new.extend(of.filter(|of| all.insert(of.clone()))),
                Err(why) => problems.push(why),
            }
        }
    }
    all
}

#[test]
fn every_type_that_is_read_from_octets_is_in_the_fuzz_target() {
    let (files, (target, types)) = (files(), target());
    assert!(types.len() > 50, "{} types", types.len());
    let mut problems = Vec::new();
    let mut named = Paths::default();
    types.iter().for_each(|one| named.visit_type(one));
    let mut first = Vec::new();
    for path in named.0.iter().map(|path| target.whole(path)) {
        match resolve(&files, TARGET, &path) {
            Ok(one) => first.extend(one),
            Err(why) => problems.push(why),
        }
    }
    let reached = reached(&files, first, &mut problems);
    for (path, file) in &files {
        let own = file.wire.keys().filter(|name| !file.aliases.contains(*name));
        let left: Vec<&String> =
            own.filter(|name| !reached.contains(&(path.clone(), (*name).clone()))).collect();
        let elsewhere = ELSEWHERE.iter().any(|(other, _)| other == path);
        match (left.is_empty(), elsewhere) {
            (false, false) => {
                problems.extend(left.iter().map(|name| format!("{path}: {name} is not in {TARGET}")))
            }
            (true, true) => problems.push(format!("{path}: no exception is needed any more")),
            _ => {}
        }
    }
    none(&problems);
}

/// A type in few words: `client::Request` is `Request`.
fn short(one: &str) -> String {
    let parts = one.split_inclusive(['<', '>', ',']);
    parts.map(|part| part.rsplit("::").next().unwrap_or_default()).collect()
}

/// The type that is written here, where it has no others in it.
fn alone(files: &BTreeMap<String, File>, path: &str, file: &File, one: &syn::Type) -> Option<Key> {
    let syn::Type::Path(of) = one else { return None };
    let has_others = of.path.segments.iter().any(|segment| !segment.arguments.is_empty());
    let names: Path = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    if has_others { None } else { resolve(files, path, &file.whole(&names)).ok()? }
}

/// A type may lie in another and come alone as well.
#[test]
fn what_is_taken_alone_is_in_the_fuzz_target_alone() {
    let (files, (target, types)) = (files(), target());
    let named: BTreeSet<String> = types.iter().map(|one| short(&written(one))).collect();
    let keys: BTreeSet<Key> = types.iter().filter_map(|one| alone(&files, TARGET, &target, one)).collect();
    let (mut problems, mut seen) = (Vec::new(), 0);
    for (path, file) in &files {
        for one in &file.taken {
            let parsed = syn::parse_str(one).unwrap_or_else(|e| panic!("{path}: {one}: {e}"));
            let is_named = match alone(&files, path, file, &parsed) {
                Some(key) => keys.contains(&key),
                // Of what kinds an order may be is below; a name for any type is none.
                None if !one.contains('<') => continue,
                None if ["Order<", "Said<"].iter().any(|of| short(one).starts_with(of)) => continue,
                None => named.contains(&short(one)),
            };
            seen += 1;
            if !is_named {
                problems.push(format!("{path}: {one} is taken, and not in {TARGET}"));
            }
        }
        for (part, says) in &file.parts {
            seen += 1;
            for one in [format!("Order<{}>", short(part)), format!("Said<{}>", short(says))] {
                if !named.contains(&one) {
                    problems.push(format!("{path}: {one} is not in {TARGET}"));
                }
            }
        }
    }
    assert!(seen > 40, "{seen} are taken");
    none(&problems);
}

#[test]
fn each_fuzz_target_has_what_it_is_for_and_a_figure_in_the_report() {
    let all = tree();
    let text = |path: &str| all.iter().find(|file| file.path == path).expect("it is there").text.as_str();
    let (manifest, report) = (text("fuzz/Cargo.toml"), text("docs/reports/fuzz.md"));
    let (first, figures) = report.split_once("| target | executions, ").expect("its figures");
    let targets: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
        .collect();
    assert!(targets.len() > 20, "{targets:?}");
    let mut problems = Vec::new();
    for target in targets {
        let is_told =
            first.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{target}`")));
        problems.extend((!is_told).then(|| format!("{target}: the report does not say what it is for")));
        let row = figures.lines().find(|line| line.starts_with(&format!("| `{target}` |")));
        let ran = row.is_some_and(|row| {
            row.split('|').skip(2).any(|cell| cell.trim().parse::<f64>().is_ok_and(|n| n > 0.0))
        });
        problems.extend((!ran).then(|| format!("{target}: the report has no figure")));
    }
    none(&problems);
}
