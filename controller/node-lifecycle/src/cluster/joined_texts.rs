//! Several short texts in one allocation: most of the memory for a hundred thousand objects holds
//! names.

use std::fmt;

/// `N` concatenated texts.
#[derive(Clone)]
pub(crate) struct Texts<const N: usize> {
    all: Box<str>,
    ends: [u32; N],
}

impl<const N: usize> Texts<N> {
    /// Concatenates texts. A total beyond 4 GiB is cut off; an API object has at most a few MiB.
    pub(crate) fn new(texts: [&str; N]) -> Self {
        let all = texts.concat().into_boxed_str();
        let mut end = 0_usize;
        let ends = texts.map(|text| {
            end += text.len();
            u32::try_from(end).unwrap_or(u32::MAX)
        });
        Self { all, ends }
    }

    /// Returns the text with this index; empty when there is none.
    pub(crate) fn get(&self, number: usize) -> &str {
        let at = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let from = number.checked_sub(1).map_or(0, at);
        self.all.get(from..at(number)).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Debug for Texts<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = (0..N).map(|number| self.get(number));
        f.debug_list().entries(texts).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_texts_are_returned_by_index() {
        let texts = Texts::new(["default/a", "", "ü", "x"]);
        let back: Vec<&str> = (0..5).map(|number| texts.get(number)).collect();
        assert_eq!(back, ["default/a", "", "ü", "x", ""]);
        assert_eq!(format!("{texts:?}"), r#"["default/a", "", "ü", "x"]"#);
    }
}
