//! The control socket: HTTP with JSON on a unix socket that only the owner may use.

use super::control_routes::ControlRequest;
use super::reply_body::{ReplyBody, whole};
use super::{ServeError, Shared, control_routes, read, serve};
use http::{Response, header};
use hyper::body::Incoming;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;

/// Opens the socket and serves it in the background.
pub(super) fn listen(shared: &Arc<Shared>, path: &Path) -> Result<(), ServeError> {
    let socket = |e| ServeError::Socket(format!("control socket {}", path.display()), e);
    // A killed simulator left this socket behind: the lock on the state directory proves that the
    // socket is not in use.
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(socket)?;
    }
    let listener = UnixListener::bind(path).map_err(socket)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(socket)?;
    let accepting = Arc::clone(shared);
    shared.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let shared = Arc::clone(&accepting);
            tokio::spawn(async move { serve(stream, |r| respond(&shared, r)).await });
        }
    });
    Ok(())
}

async fn respond(
    shared: &Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> io::Result<Response<ReplyBody>> {
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let query =
        form_urlencoded::parse(head.uri.query().unwrap_or("").as_bytes()).into_owned().collect();
    let request = ControlRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().trim_matches('/').split('/').map(str::to_owned).collect(),
        query,
        body: body.to_vec(),
    };
    let (status, value) = match control_routes::answer(shared, &request).await {
        Ok(value) => (200, value),
        Err(refused) => (refused.status, serde_json::json!({ "error": refused.why })),
    };
    let mut text = value.to_string();
    text.push('\n');
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(whole(text))
        .map_err(io::Error::other)
}
