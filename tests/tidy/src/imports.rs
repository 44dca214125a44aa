//! Which file of a crate takes what from which other: by `use`, and by paths in the code. What a file hands on of its own directory's is
//! the other file's.

use crate::Source;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A path, or the modules above a file.
type Names = Vec<String>;

/// What each file takes from each other one: names by file, by file. Paths below the crate's `src`.
pub type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A name that is made known here.
struct Use {
    path: Names,
    /// As it is called here; `*` for all that there is.
    name: String,
    /// Others may take it from here.
    is_public: bool,
}

/// What is read of a file.
#[derive(Default)]
struct File {
    place: String,
    module: Names,
    uses: Vec<Use>,
    /// Paths in the code: a name alone, too.
    paths: BTreeSet<Names>,
    /// Names of its own items.
    items: BTreeSet<String>,
}

/// The imports between the files of a crate that lies here. Its tests and its further programs are not among them.
///
/// # Panics
/// A file is no Rust.
pub fn imports(all: &[Source], place: &str) -> Imports {
    let directory = format!("{place}/src/");
    let own = all.iter().filter(|file| file.is_rust() && !file.is_of_unit_tests());
    let own: Vec<(&str, &str)> =
        own.filter_map(|file| Some((file.path.strip_prefix(&directory)?, file.text.as_str()))).collect();
    let root = ["lib.rs", "main.rs"].into_iter().find(|root| own.iter().any(|(path, _)| path == root));
    let files: BTreeMap<Names, File> = own
        .into_iter()
        .filter(|(path, _)| !path.starts_with("bin/") && (root == Some(path) || !is_root(path)))
        .map(|(path, text)| File::read(path, text))
        .map(|file| (file.module.clone(), file))
        .collect();
    files.values().map(|file| (file.place.clone(), taken(file, &files))).collect()
}

fn is_root(path: &str) -> bool {
    ["lib.rs", "main.rs"].contains(&path)
}

/// What a file takes from others.
fn taken(file: &File, files: &BTreeMap<Names, File>) -> BTreeMap<String, BTreeSet<String>> {
    let mut taken = BTreeMap::<String, BTreeSet<String>>::new();
    let mut note = |path: Option<Names>| {
        let (from, name) = path.and_then(|path| found(path, files, 0)).unzip();
        if let (Some(from), Some(name)) = (from, name)
            && from != file.place
        {
            taken.entry(from).or_default().insert(name);
        }
    };
    for one in &file.uses {
        let Some(path) = file.absolute(&one.path, files) else { continue };
        let is_used = || file.paths.iter().any(|path| path.first() == Some(&one.name));
        let hands_on = one.is_public && path.len() > file.module.len() && path.starts_with(&file.module);
        // Of a module, what is taken is seen where the code names it.
        if !files.contains_key(&path) && (!hands_on || is_used()) {
            note(Some(path));
        }
    }
    for path in file.paths.iter().filter(|path| path.len() > 1) {
        let known = file.uses.iter().find(|one| path.first() == Some(&one.name));
        let path = match known {
            Some(one) => {
                let rest = path.iter().skip(1).cloned();
                one.path.iter().cloned().chain(rest).collect()
            }
            None => path.clone(),
        };
        note(file.absolute(&path, files));
    }
    taken
}

/// The file in which what has this path from the crate's root is, and its name there.
fn found(path: Names, files: &BTreeMap<Names, File>, depth: u8) -> Option<(String, String)> {
    let within = (0..=path.len()).rev().find(|n| path.get(..*n).is_some_and(|p| files.contains_key(p)))?;
    let (module, rest) = path.split_at(within);
    let file = files.get(module)?;
    let name = rest.first()?;
    if depth < 8 && !file.items.contains(name) {
        for one in &file.uses {
            let Some(mut from) = file.absolute(&one.path, files) else { continue };
            let is_all = one.name == "*" && from.pop().is_some();
            let has = |from: &Names| files.get(from).is_some_and(|file| file.items.contains(name));
            if one.name == *name || (is_all && has(&from)) {
                from.extend(rest.iter().skip(usize::from(!is_all)).cloned());
                return found(from, files, depth + 1);
            }
        }
    }
    Some((file.place.clone(), name.clone()))
}

impl File {
    fn read(path: &str, text: &str) -> Self {
        let mut module: Names = path
            .trim_end_matches(".rs")
            .split('/')
            .filter(|part| *part != "mod")
            .map(str::to_owned)
            .collect();
        if is_root(path) {
            module.clear();
        }
        let parsed = syn::parse_file(text).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut file = Self { place: path.to_owned(), module, ..Self::default() };
        file.visit_file(&parsed);
        file
    }

    /// A path of this file's from the crate's root; `None`: it is another crate's.
    fn absolute(&self, path: &[String], files: &BTreeMap<Names, File>) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let below = |module: &[String], rest: &[String]| [module, rest].concat();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some(below(&self.module, rest)),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let above = self.module.len().checked_sub(up)?;
                Some(below(self.module.get(..above)?, path.get(up..)?))
            }
            _ => Some(below(&self.module, path))
                .filter(|whole| whole.get(..=self.module.len()).is_some_and(|p| files.contains_key(p))),
        }
    }

    /// The names of a tree of them.
    fn add_uses(&mut self, tree: &syn::UseTree, above: &[String], is_public: bool) {
        let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => return self.add_uses(&path.tree, &with(&path.ident), is_public),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_uses(tree, above, is_public));
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                (above.to_vec(), above.last().cloned().unwrap_or_default())
            }
            syn::UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(name) if name.ident == "self" => (above.to_vec(), name.rename.to_string()),
            syn::UseTree::Rename(name) => (with(&name.ident), name.rename.to_string()),
            syn::UseTree::Glob(_) => ([above, &["*".to_owned()]].concat(), "*".to_owned()),
        };
        self.uses.push(Use { path, name, is_public });
    }

    /// Paths in what a macro is given.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut goes_on = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if goes_on < 2 {
                        self.paths.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    goes_on = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => goes_on += 1,
                other => {
                    self.paths.insert(std::mem::take(&mut path));
                    goes_on = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.paths.insert(path);
    }
}

/// Whether an item is there for tests alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'a> Visit<'a> for File {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let (name, attributes) = match item {
            syn::Item::Const(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Enum(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Fn(one) => (Some(&one.sig.ident), &one.attrs),
            syn::Item::Static(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Struct(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Trait(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Type(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Union(one) => (Some(&one.ident), &one.attrs),
            syn::Item::Macro(one) => (one.ident.as_ref(), &one.attrs),
            syn::Item::Impl(one) => (None, &one.attrs),
            syn::Item::Mod(one) => (None, &one.attrs),
            syn::Item::Use(one) => (None, &one.attrs),
            _ => return,
        };
        if is_for_tests(attributes) {
            return;
        }
        self.items.extend(name.map(ToString::to_string));
        if let syn::Item::Use(one) = item {
            self.add_uses(&one.tree, &[], !matches!(one.vis, syn::Visibility::Inherited));
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    // `pub(in a::b)` takes nothing from there.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_macro(&mut self, one: &'a syn::Macro) {
        self.add_tokens(one.tokens.clone());
        visit::visit_macro(self, one);
    }
}

/// A circle of files that take from each other, the first again at its end, each with what it takes from the next; `None` where there is none.
/// What is taken from the files `left_out` does not count.
pub fn circle(imports: &Imports, left_out: &BTreeSet<&str>) -> Option<String> {
    let next = |file: &str| {
        let taken = imports.get(file).into_iter().flatten();
        taken.filter(|(other, _)| !left_out.contains(other.as_str()) && imports.contains_key(*other))
    };
    // Files of which every way leads to an end are in no circle.
    let mut rest: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
    loop {
        let ends: Vec<&str> =
            rest.iter().copied().filter(|file| !next(file).any(|(o, _)| rest.contains(o.as_str()))).collect();
        if ends.is_empty() {
            break;
        }
        rest.retain(|file| !ends.contains(file));
    }
    let (mut way, mut told) = (Vec::new(), Vec::new());
    let mut file = *rest.first()?;
    loop {
        if let Some(at) = way.iter().position(|one| *one == file) {
            let names: Vec<String> = told.into_iter().skip(at).collect();
            return Some(format!("{} {file}", names.join(" ")));
        }
        way.push(file);
        let (other, names) = next(file).find(|(other, _)| rest.contains(other.as_str()))?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        told.push(format!("{file} -[{}]->", names.join(", ")));
        file = other;
    }
}
