//! Finds the metrics that a file registers with the Prometheus client.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Expr, GenericArgument, PathArguments, Type};

use crate::source::{last, literal};

/// Finds registrations with the Prometheus client: `REGISTRY.register(NAME, HELP, FIELD.clone())`
/// or `FIELD: register(REGISTRY, NAME, HELP, …)` in an impl of the struct that declares the field,
/// and `encode_descriptor(NAME, HELP, …)` of a collector.
#[derive(Default)]
pub(crate) struct Registrations {
    /// The fields of each struct of the file, with their types.
    structs: BTreeMap<String, BTreeMap<String, Type>>,
    /// The prefix of each sub-registry of the function, by the variable that holds the registry.
    prefixes: BTreeMap<String, String>,
    own: String,
    /// Names of pairs in an array: the labels of a collector's metric.
    pub(crate) pairs: Vec<String>,
    /// Name, help, the name of the kind, and the type of the labels.
    pub(crate) found: Vec<(String, String, String, Option<String>)>,
}

/// Returns the name of a type, and its first and second generic arguments.
fn parts(of: &Type) -> (String, Vec<String>) {
    let Type::Path(it) = of else { return (String::new(), Vec::new()) };
    let arguments = match it.path.segments.last().map(|segment| &segment.arguments) {
        Some(PathArguments::AngleBracketed(it)) => it.args.iter().collect(),
        _ => Vec::new(),
    };
    let named = arguments.into_iter().filter_map(|it| match it {
        GenericArgument::Type(Type::Path(it)) => Some(last(&it.path)),
        _ => None,
    });
    (last(&it.path), named.collect())
}

/// Returns the last name of an expression such as `a.b.clone()`, `Family::clone(&b)` or `b`.
pub(crate) fn subject(expression: &Expr) -> String {
    match expression {
        Expr::MethodCall(it) => subject(&it.receiver),
        Expr::Call(it) => it.args.first().map(subject).unwrap_or_default(),
        Expr::Reference(it) => subject(&it.expr),
        Expr::Field(it) => match &it.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(_) => String::new(),
        },
        Expr::Path(it) => last(&it.path),
        _ => String::new(),
    }
}

impl<'ast> Visit<'ast> for Registrations {
    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        self.own = parts(&it.self_ty).0;
        visit::visit_item_impl(self, it);
    }

    fn visit_local(&mut self, it: &'ast syn::Local) {
        if let syn::Pat::Ident(name) = &it.pat
            && let Some(init) = &it.init
            && let Expr::MethodCall(call) = &*init.expr
            && call.method == "sub_registry_with_prefix"
            && let Some(prefix) = call.args.first().and_then(literal)
        {
            self.prefixes.insert(name.ident.to_string(), format!("{prefix}_"));
        }
        visit::visit_local(self, it);
    }

    fn visit_expr_array(&mut self, it: &'ast syn::ExprArray) {
        for element in &it.elems {
            if let Expr::Tuple(pair) = element
                && let Some(name) = pair.elems.first().and_then(literal)
            {
                self.pairs.push(name);
            }
        }
        visit::visit_expr_array(self, it);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        visit::visit_expr_method_call(self, it);
        let [Some(name), Some(help)] = [0, 1].map(|at| it.args.get(at).and_then(literal)) else {
            return;
        };
        if it.method == "encode_descriptor" {
            self.found.push((name, help, "ConstCounter".to_owned(), None));
            return;
        }
        if it.method != "register" {
            return;
        }
        let prefix = self.prefixes.get(&subject(&it.receiver));
        let name = format!("{}{name}", prefix.map_or("", String::as_str));
        self.add(name, help, &it.args.get(2).map(subject).unwrap_or_default());
    }

    fn visit_field_value(&mut self, it: &'ast syn::FieldValue) {
        visit::visit_field_value(self, it);
        if let (syn::Member::Named(field), Expr::Call(call)) = (&it.member, &it.expr)
            && matches!(&*call.func, Expr::Path(function) if last(&function.path) == "register")
            && let [Some(name), Some(help)] = [1, 2].map(|at| call.args.get(at).and_then(literal))
        {
            self.add(name, help, &field.to_string());
        }
    }
}

impl Registrations {
    /// Finds the registrations of a file.
    pub(crate) fn of(file: &syn::File) -> Self {
        let mut registrations = Self { structs: fields(file), ..Self::default() };
        registrations.visit_file(file);
        registrations
    }

    /// Adds the metric that a field of the impl's struct holds.
    fn add(&mut self, name: String, help: String, field: &str) {
        let of = self.structs.get(&self.own).and_then(|fields| fields.get(field));
        let of = of.unwrap_or_else(|| panic!("{name}: {} has no field {field}", self.own));
        let (kind, arguments) = parts(of);
        match (kind.as_str(), arguments.as_slice()) {
            ("Family", [labels, kind, ..]) => {
                self.found.push((name, help, kind.clone(), Some(labels.clone())));
            }
            _ => self.found.push((name, help, kind, None)),
        }
    }
}

/// Returns the named fields of the structs of a file.
pub(crate) fn fields(file: &syn::File) -> BTreeMap<String, BTreeMap<String, Type>> {
    let structs = file.items.iter().filter_map(|item| match item {
        syn::Item::Struct(it) => Some(it),
        _ => None,
    });
    structs
        .map(|it| {
            let fields = it.fields.iter();
            let named = fields.filter_map(|f| Some((f.ident.as_ref()?.to_string(), f.ty.clone())));
            (it.ident.to_string(), named.collect())
        })
        .collect()
}
