//! The patterns in the policy's rows.

/// Returns whether the text is this one; `*` at the end of the pattern stands for anything.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

/// Returns whether the kernel's name of a device has this form: `#` stands for digits, `@` for
/// lower-case letters.
pub(crate) fn has_form(form: &str, name: &str) -> bool {
    let mut rest = name;
    for part in form.chars() {
        let of_kind = |is: fn(&u8) -> bool| rest.bytes().take_while(is).count();
        let length = match part {
            '#' => of_kind(u8::is_ascii_digit),
            '@' => of_kind(u8::is_ascii_lowercase),
            other if rest.starts_with(other) => other.len_utf8(),
            _ => 0,
        };
        if length == 0 {
            return false;
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    rest.is_empty()
}
