//! Patterns with `*` and `?`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Run,
    One,
    Char(char),
}

impl Piece {
    pub(crate) fn of(c: char) -> Self {
        match c {
            '*' => Self::Run,
            '?' => Self::One,
            c => Self::Char(c),
        }
    }
}

/// Returns whether a text matches a pattern. The match is greedy: if the rest does not match, the
/// last run takes one more character.
pub(crate) fn matches(pattern: &[Piece], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut last_run = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(Piece::Run) => {
                last_run = Some((p + 1, t));
                p += 1;
            }
            Some(Piece::One) => {
                p += 1;
                t += 1;
            }
            Some(Piece::Char(c)) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match last_run {
                Some((after, from)) => {
                    last_run = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|p| *p == Piece::Run)
}
