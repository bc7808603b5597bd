//! The reply: the body, and how a fault malforms it.

use super::Reply;
use crate::faults::{Body, Garble};
use crate::wire::{ApiResult, xml};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Ec2,
    Sts,
}

/// What the transport does with a reply after its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Sends the reply.
    #[default]
    Normal,
    /// Keeps the connection open for this long without a reply, then closes it.
    Hang(Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Announces more bytes than it sends, then breaks the connection.
    Short,
    /// Waits for the first byte, then sends one byte at a time.
    Slow {
        /// The delay before the first byte.
        first: Duration,
        /// The delay between bytes.
        between: Duration,
    },
}

pub(super) fn render(
    action: &str,
    service: Service,
    request_id: &str,
    result: &ApiResult<String>,
    form: Body,
) -> Reply {
    let (status, body) = match (result, service) {
        (Ok(members), Service::Ec2) => (200, xml::ec2_response(action, request_id, members)),
        (Ok(members), Service::Sts) => (200, xml::sts_response(action, request_id, members)),
        (Err(e), Service::Ec2) => (e.status, xml::ec2_error(&e.code, &e.message, request_id)),
        (Err(e), Service::Sts) => (e.status, xml::sts_error(&e.code, &e.message, request_id)),
    };
    let (content_type, body) = match form {
        Body::Xml if service == Service::Sts => ("text/xml", body),
        Body::Xml => ("text/xml;charset=UTF-8", body),
        Body::Html => (
            "text/html",
            format!(
                "<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>"
            ),
        ),
        Body::Empty => ("text/plain", String::new()),
    };
    Reply {
        status,
        content_type,
        request_id: request_id.to_owned(),
        retry_after_ms: None,
        body: body.into_bytes(),
        delay_ms: 0,
        delivery: Delivery::Normal,
    }
}

pub(super) fn garble(reply: &mut Reply, how: Option<Garble>, action: &str) {
    let Some(how) = how else { return };
    reply.status = 200;
    match how {
        Garble::Unparsable => reply.body = b"}{ this is not XML <".to_vec(),
        Garble::Empty => reply.body.clear(),
        Garble::WrongRoot => {
            reply.body = format!(
                "<Not{action}Response><requestId>{}</requestId></Not{action}Response>",
                reply.request_id
            )
            .into_bytes();
        }
        Garble::Cut => {
            let half = reply.body.len() * 2 / 3;
            reply.body.truncate(half);
        }
        Garble::Short => reply.delivery = Delivery::Short,
    }
}
