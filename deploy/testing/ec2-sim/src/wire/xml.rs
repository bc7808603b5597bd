//! Writes XML.

use std::borrow::Cow;
use std::fmt::Display;

/// The element tree of a reply, written front to back. [`Xml::nest`] writes both tags of an
/// element.
#[derive(Debug, Default)]
pub(crate) struct Xml {
    out: String,
}

impl Xml {
    /// Writes `<name>text</name>`, or `<name/>` for an empty text.
    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.out.push('<');
        self.out.push_str(name);
        if value.is_empty() {
            self.out.push_str("/>");
            return self;
        }
        self.out.push('>');
        self.out.push_str(&escape(value));
        self.end(name)
    }

    /// Writes `<name>value</name>`, for numbers and booleans.
    pub(crate) fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.text(name, &value.to_string())
    }

    /// Writes the element if there is a value.
    pub(crate) fn option(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        if let Some(v) = value {
            self.value(name, v);
        }
        self
    }

    pub(crate) fn nest(
        &mut self,
        name: &str,
        members: impl FnOnce(&mut Self) -> &mut Self,
    ) -> &mut Self {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push('>');
        let before = self.out.len();
        members(self);
        if self.out.len() == before {
            self.out.pop();
            self.out.push_str("/>");
            return self;
        }
        self.end(name)
    }

    /// Writes `<name><item>…</item>…</name>`. An empty list becomes an empty element.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        self.nest(name, |x| {
            for item in items {
                x.nest("item", |x| each(x, item));
            }
            x
        })
    }

    fn end(&mut self, name: &str) -> &mut Self {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
        self
    }

    /// Takes what was written.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.out)
    }
}

/// Returns a whole EC2 reply: root, request id, members.
pub(crate) fn ec2_response(action: &str, request_id: &str, members: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>{request_id}</requestId>{members}</{action}Response>"
    )
}

/// Returns an EC2 error body: no namespace, exactly one error, `RequestID` with a capital D.
pub(crate) fn ec2_error(code: &str, message: &str, request_id: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>",
        escape(code),
        escape(message)
    )
}

pub(crate) fn sts_response(action: &str, request_id: &str, members: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>{members}</{action}Result><ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    )
}

pub(crate) fn sts_error(code: &str, message: &str, request_id: &str) -> String {
    format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>",
        escape(code),
        escape(message)
    )
}

/// Escapes text for an element's content. Replaces characters that XML 1.0 cannot represent.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let plain = |c: char| {
        !matches!(c, '&' | '<' | '>' | '"' | '\'') && (c >= ' ' || matches!(c, '\t' | '\n'))
    };
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\r' => out.push_str("&#13;"),
            c if plain(c) => out.push(c),
            _ => out.push('\u{fffd}'),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_lists_nest_and_empty_members_self_close() {
        let mut x = Xml::default();
        x.text("a", "1 < 2")
            .text("b", "")
            .option("c", None::<u8>)
            .list("s", [1, 2], |x, v| x.value("v", v))
            .list("e", Vec::<u8>::new(), |x, _| x);
        assert_eq!(
            x.finish(),
            "<a>1 &lt; 2</a><b/><s><item><v>1</v></item><item><v>2</v></item></s><e/>"
        );
    }

    #[test]
    fn errors_have_the_recorded_shape() {
        assert_eq!(
            ec2_error("IncorrectState", "it's", "r-1"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>IncorrectState</Code><Message>it&apos;s</Message></Error></Errors><RequestID>r-1</RequestID></Response>"
        );
    }
}
