//! Tag templates: the part of Go's `text/template` that StorageClasses use in tag values.
//!
//! A value such as `{{ .PVCNamespace | toUpper }}/{{ .PVCName }}` names the workload in a volume's
//! tags. The language here is text, fields, string, integer and boolean literals, pipelines,
//! parentheses, `if`/`else`, `with`, comments, trim markers, and the functions of [`eval`]. Other
//! features of Go's language (variables, `range`, nested templates, floating point) are refused
//! when the template is parsed, never rendered differently.

mod eval;
mod lex;
mod parse;

use std::fmt;

/// The source of a template's fields.
pub trait Fields {
    /// Returns the value of a field such as `PVCName`; `None` when there is no field of that name.
    fn field(&self, name: &str) -> Option<&str>;
    /// Returns the names of all fields, for error texts.
    fn names(&self) -> &'static str;
}

/// The reason why a template cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(String);

impl TemplateError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TemplateError {}

/// The most bytes of a template. A tag value has at most 256 characters.
const LENGTH_LIMIT: usize = 8192;

/// Checks a template without rendering it.
///
/// # Errors
/// [`TemplateError`] for text that is not a template of this language.
pub fn check(text: &str) -> Result<(), TemplateError> {
    parse_template(text).map(drop)
}

fn parse_template(text: &str) -> Result<Vec<parse::Node>, TemplateError> {
    if text.len() > LENGTH_LIMIT {
        return Err(TemplateError::new(format!(
            "a template has at most {LENGTH_LIMIT} bytes, this one has {}",
            text.len()
        )));
    }
    parse::parse(lex::lex(text)?)
}

/// Renders a template.
///
/// # Errors
/// [`TemplateError`] for text that is not a template of this language, an unknown field, a
/// function's wrong arguments, or an index out of range.
pub fn render(text: &str, fields: &dyn Fields) -> Result<String, TemplateError> {
    let nodes = parse_template(text)?;
    let mut out = String::new();
    eval::render(&nodes, &eval::Scope::root(fields), &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Claim;

    impl Fields for Claim {
        fn field(&self, name: &str) -> Option<&str> {
            match name {
                "PVCName" => Some("data-web-0"),
                "PVCNamespace" => Some("shop"),
                "PVName" => Some(""),
                _ => None,
            }
        }
        fn names(&self) -> &'static str {
            ".PVCName, .PVCNamespace, .PVName"
        }
    }

    #[test]
    fn supported_template_actions_render_as_in_go() {
        let rows = [
            ("", ""),
            ("plain } text { }} ok", "plain } text { }} ok"),
            ("{{ .PVCName }}", "data-web-0"),
            ("a{{.PVCNamespace}}b", "ashopb"),
            ("{{ .PVName }}", ""),
            ("{{ .PVCNamespace | toUpper }}/{{ .PVCName }}", "SHOP/data-web-0"),
            ("{{ toLower \"ÄB\" }}", "äb"),
            ("{{ .PVCName | contains \"web\" }}", "true"),
            ("{{ .PVCName | field \"-\" 1 }}", "web"),
            ("{{ field \"\" 1 \"äöü\" }}", "ö"),
            ("{{ .PVCName | substring 0 4 }}", "data"),
            ("{{ .PVCName | substring -1 4 }}", "data"),
            ("{{ .PVCName | substring 5 -1 }}", "web-0"),
            ("{{ .PVCName | substring 5 99 }}", "web-0"),
            ("{{ index \"web\" .PVCName }}", "5"),
            ("{{ index \"zzz\" .PVCName }}", "-1"),
            ("{{ lastIndex \"-\" .PVCName }}", "8"),
            ("{{ substring 0 (index \"-\" .PVCName) .PVCName }}", "data"),
            ("x {{- .PVCNamespace -}} y", "xshopy"),
            ("x{{/* a comment */}}y", "xy"),
            ("x {{- /* trimmed */ -}} y", "xy"),
            ("{{ if .PVName }}a{{ else }}b{{ end }}", "b"),
            (
                "{{ if eq .PVCNamespace \"prod\" }}1{{ else if eq .PVCNamespace \"shop\" }}2{{ else }}3{{ end }}",
                "2",
            ),
            ("{{ if and (contains \"web\" .PVCName) (not .PVName) }}y{{ end }}", "y"),
            ("{{ with .PVCName }}{{ . }}@{{ $.PVCNamespace }}{{ end }}", "data-web-0@shop"),
            ("{{ with .PVName }}{{ . }}{{ else }}none{{ end }}", "none"),
            ("{{ or .PVName \"unbound\" }}", "unbound"),
            ("{{ and .PVCName .PVCNamespace }}", "shop"),
            ("{{ eq .PVCNamespace \"a\" \"shop\" }}", "true"),
            ("{{ lt 2 10 }}{{ lt \"2\" \"10\" }}{{ ge 3 3 }}", "truefalsetrue"),
            ("{{ ne 1 2 }} {{ len .PVCNamespace }}", "true 4"),
            ("{{ slice .PVCName 5 8 }}", "web"),
            (
                "{{ printf \"%s-%d-%v-%q-%t%%\" .PVCNamespace 7 true \"q\" false }}",
                "shop-7-true-\"q\"-false%",
            ),
            ("{{ print \"a\" 1 2 \"b\" }}", "a1 2b"),
            ("{{ println .PVCNamespace 1 }}", "shop 1\n"),
            ("{{ `raw \\ text` }}{{ \"tab\\tx\\u00e9\" }}", "raw \\ texttab\txé"),
            ("{{ 0x10 }} {{ -3 }}", "16 -3"),
        ];
        for (template, want) in rows {
            assert_eq!(render(template, &Claim).as_deref(), Ok(want), "{template}");
        }
    }

    #[test]
    fn unrenderable_templates_are_refused_with_reason() {
        let rows = [
            ("{{ .Pod }}", "PVCName"),
            ("{{ .PVCName", "not closed"),
            ("{{ if .PVCName }}x", "end"),
            ("{{ end }}", "end"),
            ("{{ else }}", "else"),
            ("{{ $x := .PVCName }}", "variables"),
            ("{{ range .PVCName }}{{ end }}", "range"),
            ("{{ template \"x\" }}", "template"),
            ("{{ html .PVCName }}", "html"),
            ("{{ .PVCName | urlquery }}", "urlquery"),
            ("{{ nosuch .PVCName }}", "nosuch"),
            ("{{ .PVCName.Length }}", "field of a text"),
            ("{{ . }}", "whole"),
            ("{{ field \"-\" 9 .PVCName }}", "9"),
            ("{{ field \"-\" -1 .PVCName }}", "-1"),
            ("{{ substring 9 3 .PVCName }}", "range"),
            ("{{ substring 99 -1 .PVCName }}", "range"),
            ("{{ slice .PVCName 3 99 }}", "range"),
            ("{{ slice \"ä\" 1 2 }}", "character"),
            ("{{ toUpper }}", "toUpper"),
            ("{{ toUpper 1 }}", "toUpper"),
            ("{{ eq 1 \"1\" }}", "compare"),
            ("{{ printf \"%s\" 1 }}", "%s"),
            ("{{ printf \"%x\" 1 }}", "%x"),
            ("{{ printf \"%s\" }}", "argument"),
            ("{{ printf \"x\" 1 }}", "argument"),
            ("{{ 1.5 }}", "1.5"),
            ("{{ 99999999999999999999 }}", "9999"),
            ("{{ }}", "empty"),
            ("{{ \"open }}", "quote"),
            ("{{ (.PVCName }}", ")"),
            ("{{ .PVCName | }}", "|"),
            ("{{ \"a\" | \"b\" }}", "function"),
            ("{{ .PVCName .PVName }}", "function"),
            ("{{ '<' }}", "'"),
        ];
        for (template, word) in rows {
            let error = render(template, &Claim).expect_err(template).to_string();
            assert!(error.contains(word), "{template}: {error}");
        }
    }

    #[test]
    fn template_nested_too_deep_is_refused() {
        let deep = format!("{{{{ {}1{} }}}}", "(".repeat(500), ")".repeat(500));
        assert!(render(&deep, &Claim).unwrap_err().to_string().contains("deep"));
        let deep = "{{ if 1 }}".repeat(100) + &"{{ end }}".repeat(100);
        assert!(render(&deep, &Claim).unwrap_err().to_string().contains("deep"));
    }

    proptest! {
        #[test]
        fn any_text_renders_or_is_refused(text in "(\\{\\{|\\}\\}|-| |\\.PVCName|if|else|end|with|[|()\"`$=]|printf|eq|substring|[a-z0-9ä]){0,40}") {
            let _ = render(&text, &Claim);
        }

        #[test]
        fn text_without_action_renders_unchanged(text in "[^{]{0,80}") {
            prop_assert_eq!(render(&text, &Claim), Ok(text));
        }
    }
}
