//! Licences: names as SPDX has them, and the texts that go with an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use spdx::{Expression, ParseMode};

/// The licence of a part of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Licence {
    /// An SPDX expression.
    Expression(String),
    /// A name that SPDX does not have.
    Name(String),
}

impl Licence {
    /// Reads what a crate's manifest says, which may be of the older form `MIT/Apache-2.0`.
    pub(crate) fn of_crate(stated: &str) -> Licence {
        let canonical = Expression::canonicalize(stated).ok().flatten();
        let canonical = canonical.unwrap_or_else(|| stated.to_owned());
        match Expression::parse_mode(&canonical, ParseMode::STRICT) {
            Ok(_) => Licence::Expression(canonical),
            Err(_) => Licence::Name(stated.to_owned()),
        }
    }

    /// Reads a short name of a Debian copyright file, such as `GPL-2+`.
    ///
    /// The [format](https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/) has names
    /// of its own.
    pub(crate) fn of_debian(name: &str) -> Licence {
        let (base, suffix) = match name.strip_suffix('+') {
            Some(base) => (base, "-or-later"),
            None => (name, "-only"),
        };
        let id = match base {
            "GPL-1" | "GPL-2" | "GPL-3" | "LGPL-2" | "LGPL-3" => format!("{base}.0{suffix}"),
            "GPL-2.0" | "GPL-3.0" | "LGPL-2.0" | "LGPL-2.1" | "LGPL-3.0" => {
                format!("{base}{suffix}")
            }
            "GFDL-1.2" | "GFDL-1.3" => format!("{base}{suffix}"),
            "Apache-2" => "Apache-2.0".to_owned(),
            "Expat" => "MIT".to_owned(),
            "BSD-2-clause" => "BSD-2-Clause".to_owned(),
            "BSD-3-clause" => "BSD-3-Clause".to_owned(),
            "BSD-4-clause" => "BSD-4-Clause".to_owned(),
            _ => name.to_owned(),
        };
        match Expression::parse(&id) {
            Ok(_) => Licence::Expression(id),
            Err(_) => Licence::Name(name.to_owned()),
        }
    }

    /// Returns the licence as a term of an SPDX expression.
    fn term(&self) -> String {
        match self {
            Licence::Expression(expression) if expression.contains(' ') => {
                format!("({expression})")
            }
            Licence::Expression(id) => id.clone(),
            Licence::Name(name) => {
                let plain = |c: char| {
                    if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }
                };
                let name: String = name.chars().map(plain).collect();
                format!("LicenseRef-{name}")
            }
        }
    }
}

/// Returns the expression of all licences of an image.
pub(crate) fn all_of<'a>(licences: impl IntoIterator<Item = &'a Licence>) -> String {
    let terms: BTreeSet<String> = licences.into_iter().map(Licence::term).collect();
    terms.into_iter().collect::<Vec<_>>().join(" AND ")
}

/// The texts of licences, each once, with the parts of the image that it belongs to.
#[derive(Debug, Default)]
pub(crate) struct Texts(BTreeMap<String, BTreeSet<String>>);

impl Texts {
    /// Adds a text of a part, such as `rustix 1.1.6`.
    pub(crate) fn add(&mut self, part: &str, text: &str) {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let text = lines.join("\n").trim_matches('\n').to_owned();
        self.0.entry(text).or_default().insert(part.to_owned());
    }

    /// Adds the standard texts of an expression, for a crate that has none of its own.
    ///
    /// Returns false if the expression is none.
    pub(crate) fn add_standard(&mut self, part: &str, expression: &str) -> bool {
        let Ok(expression) = Expression::parse(expression) else { return false };
        for requirement in expression.requirements() {
            if let Some(id) = requirement.req.license.id() {
                self.add(part, id.text());
            }
        }
        true
    }

    /// Returns one document with all texts.
    pub(crate) fn document(&self, title: &str) -> String {
        let mut sorted: Vec<(&BTreeSet<String>, &String)> =
            self.0.iter().map(|(text, parts)| (parts, text)).collect();
        sorted.sort();
        let mut document = format!("Licences of {title}\n");
        for (parts, text) in sorted {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let rule = "=".repeat(80);
            let _ = write!(document, "\n{rule}\n{}\n{rule}\n\n{text}\n", parts.join("\n"));
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> Licence {
        Licence::Expression(text.to_owned())
    }

    #[test]
    fn older_form_of_crates_becomes_spdx() {
        let cases = [
            ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
            ("Apache-2.0 / MIT", "Apache-2.0 OR MIT"),
            ("(Apache-2.0 OR MIT) AND BSD-3-Clause", "(Apache-2.0 OR MIT) AND BSD-3-Clause"),
        ];
        for (stated, spdx) in cases {
            assert_eq!(Licence::of_crate(stated), expression(spdx));
        }
        assert_eq!(Licence::of_crate("my own"), Licence::Name("my own".to_owned()));
    }

    #[test]
    fn debian_names_become_spdx_where_known() {
        let cases = [
            ("GPL-2", "GPL-2.0-only"),
            ("LGPL-2.1+", "LGPL-2.1-or-later"),
            ("BSD-3-clause", "BSD-3-Clause"),
            ("Expat", "MIT"),
        ];
        for (name, spdx) in cases {
            assert_eq!(Licence::of_debian(name), expression(spdx));
        }
        let own = Licence::of_debian("MIT-US-export");
        assert_eq!(own, Licence::Name("MIT-US-export".to_owned()));
    }

    #[test]
    fn joined_licences_parse_as_one_expression() {
        let licences = [
            Licence::Name("public domain".to_owned()),
            expression("MIT OR Apache-2.0"),
            expression("MIT"),
            expression("MIT"),
        ];
        let all = all_of(&licences);
        assert_eq!(all, "(MIT OR Apache-2.0) AND LicenseRef-public-domain AND MIT");
        Expression::parse(&all).unwrap();
    }

    #[test]
    fn equal_texts_stand_once_with_both_parts() {
        let mut texts = Texts::default();
        texts.add("a 1", "Permission\r\nis granted\n\n");
        texts.add("b 2", "Permission\nis granted");
        assert!(texts.add_standard("c 3", "MIT"));
        assert!(!texts.add_standard("d 4", "no expression"));
        let document = texts.document("x");
        assert_eq!(document.matches("is granted\n").count(), 1);
        assert!(document.contains("a 1\nb 2\n"), "{document}");
        assert!(document.contains("c 3\n"), "{document}");
    }
}
