//! Reads facts out of Rust source: documented variants, and which literal a variant maps to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Expr, Lit, Pat};

use crate::root;

/// Returns the Rust files beneath a folder of the repository, without tests.
pub(crate) fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join(folder), "rs", &mut found);
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        name != "tests.rs" && !path.components().any(|part| part.as_os_str() == "tests")
    });
    assert!(!found.is_empty(), "{folder} has no source");
    found
}

/// Appends the files with this ending beneath a directory, in the order of their names.
pub(crate) fn collect(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.extension().is_some_and(|it| it == ending) {
            found.push(path);
        }
    }
}

/// Returns the parsed file, without its module `tests`.
pub(crate) fn parse(path: &Path) -> syn::File {
    let text = std::fs::read_to_string(path).expect("a source file");
    let parsed = syn::parse_file(&text);
    let mut file = parsed.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.items.retain(|item| !matches!(item, syn::Item::Mod(it) if it.ident == "tests"));
    file
}

/// Returns the value of a string literal.
pub(crate) fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns what a match arm evaluates to, without the block into which rustfmt puts a long one.
fn body(arm: &syn::Arm) -> &Expr {
    match &*arm.body {
        Expr::Block(it) => match it.block.stmts.as_slice() {
            [syn::Stmt::Expr(inner, None)] => inner,
            _ => &arm.body,
        },
        other => other,
    }
}

/// Returns the last name of a path.
pub(crate) fn last(path: &syn::Path) -> String {
    let segment = path.segments.last().expect("a segment");
    segment.ident.to_string()
}

/// Returns the text of the doc comments among the attributes.
pub(crate) fn documentation(attributes: &[syn::Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(it) = &attribute.meta
            && it.path.is_ident("doc")
            && let Some(line) = literal(&it.value)
        {
            text.push_str(line.trim_end());
        }
    }
    text.trim().to_owned()
}

/// Returns the variants of an enum with their documentation, in the order of the source.
pub(crate) fn variants(file: &syn::File, name: &str) -> Vec<(String, String)> {
    let item = file.items.iter().find_map(|item| match item {
        syn::Item::Enum(it) if it.ident == name => Some(it),
        _ => None,
    });
    let item = item.unwrap_or_else(|| panic!("no enum {name}"));
    let variants = item.variants.iter();
    variants.map(|it| (it.ident.to_string(), documentation(&it.attrs))).collect()
}

/// Returns, for a method that matches on its enum, what each variant maps to: a literal, or the
/// last name of a path.
pub(crate) fn mapping(file: &syn::File, of: &str, method: &str) -> BTreeMap<String, String> {
    struct Arms(BTreeMap<String, String>);
    impl<'ast> Visit<'ast> for Arms {
        fn visit_arm(&mut self, arm: &'ast syn::Arm) {
            let value = literal(body(arm)).or_else(|| match body(arm) {
                Expr::Path(it) => Some(last(&it.path)),
                _ => None,
            });
            for variant in named(&arm.pat) {
                let value = value.clone();
                let value = value.unwrap_or_else(|| panic!("{variant}: no literal, no path"));
                self.0.insert(variant, value);
            }
        }
    }
    for item in &file.items {
        let syn::Item::Impl(block) = item else { continue };
        let is_of = matches!(&*block.self_ty, syn::Type::Path(it) if last(&it.path) == of);
        for member in &block.items {
            if let syn::ImplItem::Fn(function) = member
                && is_of
                && function.sig.ident == method
            {
                let mut arms = Arms(BTreeMap::new());
                visit::visit_impl_item_fn(&mut arms, function);
                return arms.0;
            }
        }
    }
    panic!("no {of}::{method}");
}

/// Returns the variants that a pattern names.
fn named(pattern: &Pat) -> Vec<String> {
    match pattern {
        Pat::Or(it) => it.cases.iter().flat_map(named).collect(),
        Pat::Path(it) => vec![last(&it.path)],
        Pat::TupleStruct(it) => vec![last(&it.path)],
        Pat::Struct(it) => vec![last(&it.path)],
        _ => Vec::new(),
    }
}
