//! Where a file of code can be changed, and the same file with every change behind a switch.

use std::collections::BTreeSet;
use std::ops::Range;

use quote::ToTokens as _;
use syn::visit::{self, Visit};

/// The function that the changed crate is given: whether this change is on.
pub const SWITCH: &str = "levee_mutant";

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its number in the whole crate, from 1.
    pub id: u32,
    /// In which line.
    pub line: usize,
    /// In which function, and what is changed.
    pub what: String,
}

/// How the text of a place becomes one with switches in it.
#[derive(Debug)]
enum Place {
    /// `left op right`, both of which are evaluated.
    Values { left: Range<usize>, op: String, right: Range<usize>, others: Vec<(u32, String)> },
    /// A comparison, which takes no operand away.
    Compared { left: Range<usize>, op: String, right: Range<usize>, others: Vec<(u32, String)> },
    /// `left && right`, or `left || right`.
    Both { left: Range<usize>, and: bool, right: Range<usize>, other: u32 },
    /// `left op= right`.
    Assigned { left: Range<usize>, op: String, right: Range<usize>, others: Vec<(u32, String)> },
    /// `!inner`, or `-inner`.
    Negated { op: char, inner: Range<usize>, without: u32 },
    /// What a match arm is guarded by, or nothing: always, never, and the arm taken away.
    Guard { guard: Option<Range<usize>>, always: Option<u32>, never: Option<u32>, gone: Option<u32> },
    /// The beginning of a function's body.
    Body { values: Vec<(u32, String)> },
}

/// All places of a file.
pub struct File {
    text: String,
    lines: Vec<usize>,
    next: u32,
    function: Vec<String>,
    /// Within something that is evaluated when it is compiled.
    constant: usize,
    places: Vec<(Range<usize>, Place)>,
    /// Every change of it.
    pub changes: Vec<Change>,
}

impl File {
    /// The places of a text; the first change has the number `next`.
    ///
    /// # Errors
    /// It is no Rust.
    pub fn read(text: String, next: u32) -> syn::Result<Self> {
        let parsed = syn::parse_file(&text)?;
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let (places, changes, function) = (Vec::new(), Vec::new(), Vec::new());
        let mut file = Self { text, lines, next, function, constant: 0, places, changes };
        file.visit_file(&parsed);
        file.places.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        Ok(file)
    }

    /// The text with a switch for each change but those that are `out`.
    pub fn switched(&self, out: &BTreeSet<u32>) -> String {
        self.render(0..self.text.len(), None, out)
    }

    fn offset(&self, at: proc_macro2::LineColumn) -> usize {
        let line = self.lines.get(at.line - 1).copied().unwrap_or_default();
        let rest = self.text.get(line..).unwrap_or_default();
        line + rest.char_indices().nth(at.column).map_or(rest.len(), |(octet, _)| octet)
    }

    fn range(&self, of: &impl syn::spanned::Spanned) -> Range<usize> {
        let span = of.span();
        self.offset(span.start())..self.offset(span.end())
    }

    fn change(&mut self, at: usize, what: &str) -> u32 {
        let (id, line) = (self.next, self.lines.partition_point(|start| *start <= at));
        self.next += 1;
        let what = format!("{what} in {}", self.function.join("::"));
        self.changes.push(Change { id, line, what });
        id
    }

    /// The text of a range with what is changed within it; `below`: not at this place itself.
    fn render(&self, range: Range<usize>, below: Option<usize>, out: &BTreeSet<u32>) -> String {
        let (mut text, mut at) = (String::new(), range.start);
        let first = below.map_or(0, |place| place + 1);
        for (number, (of, _)) in self.places.iter().enumerate().skip(first) {
            if of.start < at || of.end > range.end {
                continue;
            }
            if of.start > range.end {
                break;
            }
            text.push_str(&self.text[at..of.start]);
            text.push_str(&self.place(number, out));
            at = of.end;
        }
        text.push_str(&self.text[at..range.end]);
        text
    }

    fn place(&self, number: usize, out: &BTreeSet<u32>) -> String {
        let (whole, place) = &self.places[number];
        let on = |id: &u32| format!("crate::{SWITCH}({id})");
        let inner = |range: &Range<usize>| self.render(range.clone(), Some(number), out);
        let kept = |others: &[(u32, String)]| -> Vec<(u32, String)> {
            others.iter().filter(|(id, _)| !out.contains(id)).cloned().collect()
        };
        let chosen = |others: &[(u32, String)], of: &dyn Fn(&str) -> String, op: &str| {
            let mut text = String::new();
            for (id, other) in others {
                text.push_str(&format!("if {} {{ {} }} else ", on(id), of(other)));
            }
            format!("{text}{{ {} }}", of(op))
        };
        let as_it_is = || self.render(whole.clone(), Some(number), out);
        match place {
            Place::Values { left, op, right, others } => match kept(others) {
                others if others.is_empty() => as_it_is(),
                others => {
                    let values = chosen(&others, &|op| format!("l {op} r"), op);
                    format!("(match (({}), ({})) {{ (l, r) => {values} }})", inner(left), inner(right))
                }
            },
            Place::Compared { left, op, right, others } => match kept(others) {
                others if others.is_empty() => as_it_is(),
                others => {
                    let values = chosen(&others, &|op| format!("l {op} r"), op);
                    format!("(match (&({}), &({})) {{ (l, r) => {values} }})", inner(left), inner(right))
                }
            },
            Place::Both { other, .. } if out.contains(other) => as_it_is(),
            Place::Both { left, and, right, other } => {
                let (yes, no) = if *and { ("", "!") } else { ("!", "") };
                format!(
                    "(match ({}) {{ true if {yes}{} => true, false if {no}{} => false, _ => ({}) }})",
                    inner(left),
                    on(other),
                    on(other),
                    inner(right)
                )
            }
            Place::Assigned { left, op, right, others } => match kept(others) {
                others if others.is_empty() => as_it_is(),
                others => {
                    let to = inner(left);
                    let values = chosen(&others, &|op| format!("{to} {op} r;"), op);
                    format!("{{ let r = {}; {values} }}", inner(right))
                }
            },
            Place::Negated { without, .. } if out.contains(without) => as_it_is(),
            Place::Negated { op, inner: of, without } => {
                format!("(match ({}) {{ x => if {} {{ x }} else {{ {op}x }} }})", inner(of), on(without))
            }
            Place::Guard { guard, always, never, gone } => {
                let kept = |id: &Option<u32>| id.filter(|id| !out.contains(id));
                let mut text =
                    guard.as_ref().map_or_else(|| "true".to_owned(), |guard| format!("({})", inner(guard)));
                if let Some(never) = kept(never) {
                    text = format!("(!{} && {text})", on(&never));
                }
                if let Some(always) = kept(always) {
                    text = format!("({} || {text})", on(&always));
                }
                if let Some(gone) = kept(gone) {
                    text = format!("!{} && {text}", on(&gone));
                }
                if guard.is_some() { text } else { format!(" if {text}") }
            }
            Place::Body { values } => {
                let mut text = String::new();
                for (id, value) in kept(values) {
                    text.push_str(&format!("if {} {{ return {value}; }}\n", on(&id)));
                }
                text
            }
        }
    }

    fn in_function<'a>(&mut self, signature: &'a syn::Signature, block: &'a syn::Block) {
        self.function.push(signature.ident.to_string());
        let outer = std::mem::replace(&mut self.constant, usize::from(signature.constness.is_some()));
        let decides = block.stmts.len() > 1
            || block
                .stmts
                .first()
                .is_some_and(|one| !matches!(one, syn::Stmt::Expr(syn::Expr::Lit(_), None)));
        if self.constant == 0 && decides && !block.stmts.is_empty() {
            let at = self.offset(block.brace_token.span.open().end());
            let mut values = Vec::new();
            for value in returned(&signature.output) {
                let id = self
                    .change(at, &format!("the body: {}", if value.is_empty() { "nothing" } else { &value }));
                values.push((id, value));
            }
            if !values.is_empty() {
                self.places.push((at..at, Place::Body { values }));
            }
        }
        visit::visit_block(self, block);
        self.constant = outer;
        self.function.pop();
    }

    fn binary(&mut self, of: &syn::ExprBinary) {
        let (left, right, whole) = (self.range(&*of.left), self.range(&*of.right), self.range(of));
        let op = of.op.to_token_stream().to_string();
        let place = match &of.op {
            syn::BinOp::And(_) | syn::BinOp::Or(_) => {
                if is_let(&of.left) || is_let(&of.right) {
                    return;
                }
                let and = matches!(of.op, syn::BinOp::And(_));
                let other = self.change(left.end, if and { "&& to ||" } else { "|| to &&" });
                Place::Both { left, and, right, other }
            }
            other => {
                let (others, kind): (&[&str], u8) = match other {
                    syn::BinOp::Eq(_) => (&["!="], 0),
                    syn::BinOp::Ne(_) => (&["=="], 0),
                    syn::BinOp::Lt(_) => (&["<=", "==", ">"], 0),
                    syn::BinOp::Le(_) => (&["<", ">"], 0),
                    syn::BinOp::Gt(_) => (&[">=", "==", "<"], 0),
                    syn::BinOp::Ge(_) => (&[">", "<"], 0),
                    syn::BinOp::Add(_) => (&["-", "*"], 1),
                    syn::BinOp::Sub(_) => (&["+", "/"], 1),
                    syn::BinOp::Mul(_) => (&["+", "/"], 1),
                    syn::BinOp::Div(_) => (&["%", "*"], 1),
                    syn::BinOp::Rem(_) => (&["/", "+"], 1),
                    syn::BinOp::Shl(_) => (&[">>"], 1),
                    syn::BinOp::Shr(_) => (&["<<"], 1),
                    syn::BinOp::BitAnd(_) => (&["|", "^"], 1),
                    syn::BinOp::BitOr(_) => (&["&", "^"], 1),
                    syn::BinOp::BitXor(_) => (&["&", "|"], 1),
                    syn::BinOp::AddAssign(_) => (&["-=", "*="], 2),
                    syn::BinOp::SubAssign(_) => (&["+=", "/="], 2),
                    syn::BinOp::MulAssign(_) => (&["+=", "/="], 2),
                    syn::BinOp::ShlAssign(_) => (&[">>="], 2),
                    syn::BinOp::ShrAssign(_) => (&["<<="], 2),
                    syn::BinOp::BitAndAssign(_) => (&["|="], 2),
                    syn::BinOp::BitOrAssign(_) => (&["&=", "^="], 2),
                    syn::BinOp::BitXorAssign(_) => (&["&=", "|="], 2),
                    _ => return,
                };
                let mut changed = Vec::new();
                for other in others {
                    changed.push((self.change(left.end, &format!("{op} to {other}")), (*other).to_owned()));
                }
                let others = changed;
                match kind {
                    0 => Place::Compared { left, op, right, others },
                    1 => Place::Values { left, op, right, others },
                    _ => Place::Assigned { left, op, right, others },
                }
            }
        };
        self.places.push((whole, place));
    }

    fn arms(&mut self, of: &syn::ExprMatch) {
        let wild = of.arms.iter().position(|arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_)));
        for (number, arm) in of.arms.iter().enumerate() {
            let pattern = self.range(&arm.pat);
            let gone = wild.is_some_and(|wild| number < wild);
            match &arm.guard {
                Some((_, guard)) if !is_let(guard) => {
                    let at = self.range(&**guard);
                    let gone = gone.then(|| self.change(pattern.start, "an arm taken away"));
                    let always = Some(self.change(at.start, "a guard: always"));
                    let never =
                        if gone.is_none() { Some(self.change(at.start, "a guard: never")) } else { None };
                    self.places.push((at.clone(), Place::Guard { guard: Some(at), always, never, gone }));
                }
                None if gone => {
                    let gone = Some(self.change(pattern.start, "an arm taken away"));
                    let at = pattern.end;
                    self.places.push((at..at, Place::Guard { guard: None, always: None, never: None, gone }));
                }
                _ => {}
            }
        }
    }
}

/// Whether `let` is in it, as one of its conditions.
fn is_let(of: &syn::Expr) -> bool {
    match of {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => is_let(&binary.left) || is_let(&binary.right),
        syn::Expr::Paren(paren) => is_let(&paren.expr),
        _ => false,
    }
}

/// Plain values of what a function returns.
fn returned(output: &syn::ReturnType) -> Vec<String> {
    match output {
        syn::ReturnType::Default => vec![String::new()],
        syn::ReturnType::Type(_, of) => values(of, 0),
    }
}

fn values(of: &syn::Type, depth: usize) -> Vec<String> {
    let plain = || vec!["::core::default::Default::default()".to_owned()];
    let path = match of {
        syn::Type::Path(path) => path,
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => return vec!["()".to_owned()],
        syn::Type::Tuple(_) | syn::Type::Array(_) => return plain(),
        syn::Type::Reference(reference) if reference.mutability.is_none() => {
            return match &*reference.elem {
                syn::Type::Path(path) if path.path.is_ident("str") => {
                    vec!["\"\"".to_owned(), "\"xyzzy\"".to_owned()]
                }
                syn::Type::Slice(_) => vec!["&[]".to_owned()],
                _ => Vec::new(),
            };
        }
        _ => return Vec::new(),
    };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let name = last.ident.to_string();
    let first = || match &last.arguments {
        syn::PathArguments::AngleBracketed(all) => all.args.iter().find_map(|one| match one {
            syn::GenericArgument::Type(of) => Some(of.clone()),
            _ => None,
        }),
        _ => None,
    };
    let within = |wrap: &str| -> Vec<String> {
        let inner = first().filter(|_| depth < 2).map(|of| values(&of, depth + 1)).unwrap_or_default();
        inner.iter().map(|value| format!("{wrap}({value})")).collect()
    };
    match name.as_str() {
        "bool" => vec!["true".to_owned(), "false".to_owned()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
            vec!["0".to_owned(), "1".to_owned()]
        }
        "String" => vec!["::std::string::String::new()".to_owned(), "\"xyzzy\".into()".to_owned()],
        "Option" => std::iter::once("None".to_owned()).chain(within("Some")).collect(),
        "Result" => within("Ok"),
        "Vec" => vec!["::std::vec::Vec::new()".to_owned()],
        "Self" => plain(),
        _ => plain(),
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    let text = |one: &syn::Attribute| one.meta.to_token_stream().to_string();
    attributes.iter().map(text).any(|text| text == "test" || text.replace(' ', "").starts_with("cfg(test"))
}

/// What is printed for people decides nothing.
fn is_for_people(of: &syn::ItemImpl) -> bool {
    let named = of.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
    named.is_some_and(|last| last.ident == "Display" || last.ident == "Debug")
}

impl<'a> Visit<'a> for File {
    fn visit_item_fn(&mut self, of: &'a syn::ItemFn) {
        if !is_test(&of.attrs) {
            self.in_function(&of.sig, &of.block);
        }
    }

    fn visit_impl_item_fn(&mut self, of: &'a syn::ImplItemFn) {
        if !is_test(&of.attrs) {
            self.in_function(&of.sig, &of.block);
        }
    }

    fn visit_trait_item_fn(&mut self, of: &'a syn::TraitItemFn) {
        if let Some(block) = &of.default {
            self.in_function(&of.sig, block);
        }
    }

    fn visit_item_mod(&mut self, of: &'a syn::ItemMod) {
        if !is_test(&of.attrs) {
            visit::visit_item_mod(self, of);
        }
    }

    fn visit_item_impl(&mut self, of: &'a syn::ItemImpl) {
        if is_test(&of.attrs) || is_for_people(of) {
            return;
        }
        self.function.push(of.self_ty.to_token_stream().to_string().replace(' ', ""));
        visit::visit_item_impl(self, of);
        self.function.pop();
    }

    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}

    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}

    fn visit_type(&mut self, _: &'a syn::Type) {}

    fn visit_expr_repeat(&mut self, of: &'a syn::ExprRepeat) {
        // Its length is known when it is compiled.
        self.visit_expr(&of.expr);
    }

    fn visit_variant(&mut self, _: &'a syn::Variant) {}

    fn visit_pat(&mut self, _: &'a syn::Pat) {}

    fn visit_expr_binary(&mut self, of: &'a syn::ExprBinary) {
        if self.constant == 0 {
            self.binary(of);
        }
        visit::visit_expr_binary(self, of);
    }

    fn visit_expr_unary(&mut self, of: &'a syn::ExprUnary) {
        let op = match of.op {
            syn::UnOp::Not(_) => '!',
            syn::UnOp::Neg(_) if !matches!(&*of.expr, syn::Expr::Lit(_)) => '-',
            _ => return visit::visit_expr_unary(self, of),
        };
        if self.constant == 0 {
            let (whole, inner) = (self.range(of), self.range(&*of.expr));
            let without = self.change(whole.start, &format!("{op} taken away"));
            self.places.push((whole, Place::Negated { op, inner, without }));
        }
        visit::visit_expr_unary(self, of);
    }

    fn visit_expr_match(&mut self, of: &'a syn::ExprMatch) {
        if self.constant == 0 {
            self.arms(of);
        }
        visit::visit_expr_match(self, of);
    }
}
