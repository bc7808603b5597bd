//! The modules of a crate and their imports, read from its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// A module's path beneath its crate; empty for the root.
type Module = Vec<String>;

/// One file's module, with what its code names outside of tests.
#[derive(Default)]
struct Source {
    /// Paths as written, after the names of the inline modules that surround them.
    paths: Vec<(Module, Vec<String>)>,
    /// Names that `pub use` gives to other paths.
    reexports: BTreeMap<String, Vec<String>>,
    inline: Module,
    /// The types that the module defines, and those to which it adds methods.
    defined: BTreeSet<String>,
    extended: BTreeSet<String>,
    /// Lines before the tests that are neither blank nor comments.
    lines: usize,
}

impl Source {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("a source file");
        let parsed = syn::parse_file(&text).expect("Rust");
        let before_tests = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(&text);
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = before_tests.lines().filter(is_code).count();
        let mut source = Self { lines, ..Self::default() };
        source.visit_file(&parsed);
        source
    }

    /// Returns whether the module adds methods to a type that another module defines.
    fn extends_others(&self) -> bool {
        self.extended.difference(&self.defined).next().is_some()
    }

    /// Returns whether the code names an item of the child module of this name.
    fn names(&self, child: &str) -> bool {
        self.paths.iter().any(|(inline, path)| {
            let path = path.strip_prefix(&["self".to_owned()]).unwrap_or(path);
            inline.is_empty() && path.len() > 1 && path[0] == child
        })
    }

    fn leaves(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => {
                self.leaves(&path.tree, &with(path.ident.to_string()), is_public)
            }
            UseTree::Group(group) => {
                for item in &group.items {
                    self.leaves(item, before, is_public);
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.leaf(before.to_vec(), None, is_public)
            }
            UseTree::Name(name) => self.leaf(with(name.ident.to_string()), None, is_public),
            UseTree::Rename(renamed) => {
                let name = Some(renamed.rename.to_string());
                self.leaf(with(renamed.ident.to_string()), name, is_public);
            }
            UseTree::Glob(_) => self.leaf(before.to_vec(), None, false),
        }
    }

    fn leaf(&mut self, path: Vec<String>, renamed: Option<String>, is_public: bool) {
        if is_public && let Some(name) = renamed.or_else(|| path.last().cloned()) {
            self.reexports.insert(name, path.clone());
        }
        self.paths.push((self.inline.clone(), path));
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if is_test(attributes) {
            return;
        }
        if let Item::Struct(syn::ItemStruct { ident, .. })
        | Item::Enum(syn::ItemEnum { ident, .. }) = item
        {
            self.defined.insert(ident.to_string());
        }
        match item {
            Item::Impl(syn::ItemImpl { trait_: None, self_ty, .. }) => {
                if let syn::Type::Path(of) = &**self_ty
                    && let Some(name) = of.path.segments.last()
                {
                    self.extended.insert(name.ident.to_string());
                }
                visit::visit_item(self, item);
            }
            Item::Use(item) => {
                let is_public = !matches!(item.vis, syn::Visibility::Inherited);
                self.leaves(&item.tree, &[], is_public);
            }
            Item::Mod(module) if module.content.is_some() => {
                self.inline.push(module.ident.to_string());
                visit::visit_item(self, item);
                self.inline.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    /// What a macro takes is not parsed; its tokens are separated by spaces.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let text = call.tokens.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            if !matches!(*word, "crate" | "super") {
                continue;
            }
            let steps = words[at + 1..].chunks_exact(2);
            let names = steps.take_while(|pair| pair[0] == "::").map(|pair| pair[1]);
            let path = [*word].into_iter().chain(names).map(str::to_owned);
            self.paths.push((self.inline.clone(), path.collect()));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if names.len() > 1 {
            self.paths.push((self.inline.clone(), names));
        }
        visit::visit_path(self, path);
    }
}

fn modules(folder: &Path) -> BTreeMap<Module, Source> {
    let mut found = BTreeMap::new();
    let is_library = folder.join("lib.rs").exists();
    let mut folders = vec![(folder.to_owned(), Module::new())];
    while let Some((folder, above)) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().into_string().expect("UTF-8"));
            if path.is_dir() {
                folders.push((path, [above.as_slice(), &[name]].concat()));
                continue;
            }
            let module = match name.strip_suffix(".rs") {
                None | Some("tests") => continue,
                Some("main") if above.is_empty() && is_library => continue,
                Some("lib" | "main") if above.is_empty() => Module::new(),
                Some(name) => [above.as_slice(), &[name.to_owned()]].concat(),
            };
            if !module.iter().any(|name| name == "tests") {
                found.insert(module, Source::read(&path));
            }
        }
    }
    found
}

/// The module in which a path that is written in `module` ends; None outside of the crate.
fn resolve(
    modules: &BTreeMap<Module, Source>,
    module: &[String],
    path: &[String],
    hops: u8,
) -> Option<Module> {
    let first = path.first()?;
    let mut absolute = match first.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module, &path[1..]].concat(),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            [&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()
        }
        _ => {
            let child = [module, &path[..1]].concat();
            modules.contains_key(&child).then(|| [module, path].concat())?
        }
    };
    let mut rest = Vec::new();
    while !modules.contains_key(&absolute) {
        rest.insert(0, absolute.pop()?);
    }
    let reexported = rest.first().and_then(|name| modules[&absolute].reexports.get(name));
    match reexported {
        Some(path) if hops > 0 => {
            let path = [path.as_slice(), &rest[1..]].concat();
            resolve(modules, &absolute, &path, hops - 1).or(Some(absolute))
        }
        _ => Some(absolute),
    }
}

/// For each module the modules that it imports, other than those above and beneath itself.
fn imports(modules: &BTreeMap<Module, Source>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let mut imports = BTreeMap::new();
    for (module, source) in modules {
        let mut its = BTreeSet::new();
        for (inline, path) in &source.paths {
            let from = [module.as_slice(), inline].concat();
            if let Some(to) = resolve(modules, &from, path, 8)
                && !to.starts_with(module)
                && !module.starts_with(&to)
            {
                its.insert(to);
            }
        }
        imports.insert(module, its);
    }
    imports
}

/// A way from `from` back to itself.
fn cycle(imports: &BTreeMap<&Module, BTreeSet<Module>>, from: &Module) -> Option<Vec<Module>> {
    let mut ways = vec![vec![from.clone()]];
    let mut passed = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in &imports[way.last()?] {
            let longer = [way.as_slice(), std::slice::from_ref(next)].concat();
            if next == from {
                return Some(longer);
            }
            if passed.insert(next.clone()) {
                ways.push(longer);
            }
        }
    }
    None
}

/// Returns the first cycle of the crate whose sources are in this folder, as text.
pub(crate) fn first_cycle(folder: &Path) -> Option<String> {
    let modules = modules(folder);
    let imports = imports(&modules);
    let way = modules.keys().find_map(|module| cycle(&imports, module))?;
    let names: Vec<String> = way.iter().map(|module| module.join("::")).collect();
    Some(names.join(" -> "))
}

/// Returns each module that the module `entry` can reach, and its lines without tests, comments and
/// blank lines. A module reaches those that it imports and those that add methods to types of such
/// modules.
pub(crate) fn reachable(folder: &Path, entry: &[&str]) -> BTreeMap<String, usize> {
    let modules = modules(folder);
    let imports = imports(&modules);
    let entry: Module = entry.iter().map(|name| (*name).to_owned()).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec![entry];
    while let Some(module) = next.pop() {
        if !reached.insert(module.clone()) {
            continue;
        }
        next.extend(imports[&module].iter().cloned());
        let children = modules.iter().filter(|(child, _)| {
            child.len() == module.len() + 1 && child.starts_with(&module) && !module.is_empty()
        });
        next.extend(
            children
                .filter(|(child, source)| {
                    source.extends_others() || modules[&module].names(&child[child.len() - 1])
                })
                .map(|(child, _)| child.clone()),
        );
    }
    let name = |module: Module| module.join("::");
    reached.into_iter().map(|module| (name(module.clone()), modules[&module].lines)).collect()
}
