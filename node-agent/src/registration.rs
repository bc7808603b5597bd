//! Registers the driver with kubelet through a socket in kubelet's registration directory, on which
//! kubelet asks for the driver's name and endpoint.
//!
//! The socket is bound while the process may still enter that directory, which on a node belongs to
//! root alone. Later the process keeps the socket file open and notices its removal. It then makes
//! another socket where the directory's permissions allow that, and otherwise ends, so that it is
//! restarted with the right to make one. When another agent has put its own socket there (a
//! DaemonSet update with surge), this process does not compete for the name and waits for the
//! signal to end.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::endpoint::{Listener, remove_socket};
use ebs_csi_proto::pluginregistration::registration_server::{
    Registration as Service, RegistrationServer,
};
use ebs_csi_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use ebs_csi_proto::{DRIVER_NAME, serve};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

pub mod own_directories;
pub(crate) mod socket_file;
mod state;

use socket_file::{Holder, Prepared, SocketFile};
pub use state::RegistrationState;

/// Name of the socket beneath the registration directory. It must contain an `@`.
///
/// Kubelet dials the socket by its path and sets no authority (`dial` in its
/// `pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go`). grpc-go then sends the
/// percent-encoded path as `:authority`, and h2 0.4 resets the stream with PROTOCOL_ERROR, because
/// a host may not contain a `%` (<https://github.com/hyperium/h2/issues/487>). The user information
/// before an `@` may contain a `%`. grpc-go does not encode the `@`, so h2 reads the path as the
/// user and `localhost.sock` as the host.
///
/// `deploy/testing/e2e/tests/clients/dialed.rs` shows both: once a socket without the `@` is
/// answered, this name is no longer needed.
pub const SOCKET: &str = "ebs.csi.aws.com-reg@localhost.sock";
/// The socket of the stock registrar, which the Go driver uses. A leftover socket would keep
/// kubelet dialing, and its later removal would unregister this driver, which has the same name.
pub const FORMER_SOCKET: &str = "ebs.csi.aws.com-reg.sock";
/// The kind of plugin, as kubelet spells it.
const KIND: &str = "CSIPlugin";
/// The interface version that a CSI driver reports.
const VERSION: &str = "1.0.0";
/// Pause between two checks of a socket file.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Grace period for kubelet's calls when the process ends; the calls are short.
const GRACE: Duration = Duration::from_secs(1);
/// Kubelet checks once a second what to register and what to unregister, in parallel and by the
/// driver's name: the former socket must be unregistered before the new one appears.
const UNREGISTERING: Duration = Duration::from_secs(2);

/// What to register, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationTarget {
    /// Kubelet's registration directory, as this process sees it.
    pub directory: PathBuf,
    /// The CSI socket, as kubelet sees it.
    pub endpoint: PathBuf,
}

impl RegistrationTarget {
    /// Returns the path of the socket file.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Removes the sockets of a stock registrar and of an agent that started as its own user, and
    /// gives kubelet time to notice. Logs a failure to remove them.
    pub fn remove_former(&self) {
        remove_former(&self.directory);
        // Kubelet would refuse the driver at another socket.
        let own = self.directory.join(own_directories::DIRECTORY);
        own_directories::remove_unserved(&own.join(SOCKET));
    }
}

fn remove_former(directory: &Path) {
    remove_abandoned(&directory.join(FORMER_SOCKET), "a stock registrar");
}

/// Removes a registration socket that its `owner` has left, if there is one, and gives kubelet time
/// to notice. Logs a failure to remove it.
fn remove_abandoned(socket: &Path, owner: &str) {
    match remove_socket(socket) {
        Ok(false) => {}
        Ok(true) => {
            tracing::info!(socket = %socket.display(), "removed the registration socket of {owner}");
            std::thread::sleep(UNREGISTERING);
        }
        Err(error) => {
            tracing::warn!(socket = %socket.display(), %error, "the registration socket of {owner} stays");
        }
    }
}

/// Removes the registration socket of this container's agent, as the stock registrar does at its
/// end. Kubelet would take the agent as registered as long as the file exists, and refuse the same
/// driver at another socket: the Go driver after a rollback. The confined agent may not remove the
/// file. Returns whether there was one.
///
/// The socket stays where the agent of another container serves it (a DaemonSet update with surge).
///
/// # Errors
/// As connect(2) and unlink(2).
pub fn withdraw(directory: &Path) -> io::Result<bool> {
    let path = directory.join(SOCKET);
    match std::os::unix::net::UnixStream::connect(&path) {
        Ok(stream) => {
            let own = is_of_this_container(stream)?;
            Ok(own && remove_socket(&path)?)
        }
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(false),
            // Nobody serves the socket any more, or the file is none.
            io::ErrorKind::ConnectionRefused => remove_socket(&path),
            _ => Err(error),
        },
    }
}

/// Returns whether the process that listens is visible here: the kernel gives the id 0 for a
/// process of another container (`SO_PEERCRED`, unix(7)).
fn is_of_this_container(stream: std::os::unix::net::UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let listening = tokio::net::UnixStream::from_std(stream)?.peer_cred()?;
    Ok(listening.pid() != Some(0))
}

/// A bound socket in the registration directory.
#[derive(Debug)]
pub struct Registration {
    listener: UnixListener,
    file: SocketFile,
    endpoint: String,
}

/// A socket was removed and this process may not make another one.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} was removed and cannot be made again: {source}; started anew, the process makes it before it gives up its rights"
)]
pub struct Lost {
    path: String,
    source: io::Error,
}

impl Lost {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }
}

impl Registration {
    /// Puts a socket where kubelet finds it. Replaces the socket of an earlier process; kubelet
    /// sees a new one.
    ///
    /// # Errors
    /// As rename(2).
    pub fn take_over(prepared: Prepared, target: &RegistrationTarget) -> io::Result<Self> {
        let (listener, file) = prepared.take_over()?;
        Ok(Self { listener, file, endpoint: target.endpoint.display().to_string() })
    }

    /// Answers kubelet while the socket file exists, and makes another one when the file was
    /// removed. Returns only when that fails. `csi` is the CSI socket, if it is a file: an agent
    /// that replaces this one takes over that socket first.
    pub async fn serve(
        mut self,
        csi: Option<&SocketFile>,
        registration_state: Arc<RegistrationState>,
    ) -> Lost {
        loop {
            let answers = Answers {
                endpoint: self.endpoint.clone(),
                registration_state: Arc::clone(&registration_state),
            };
            if let Err(source) = self.answer(answers).await {
                return Lost::new(self.file.path(), source);
            }
            registration_state.record_new_socket(Instant::now());
            if csi.is_some_and(|csi| csi.holder() != Holder::This) {
                registration_state.record_takeover();
                tracing::warn!("another agent has taken over this node's sockets");
                return std::future::pending().await;
            }
            match SocketFile::bind(self.file.path()) {
                Ok((listener, file)) => {
                    tracing::warn!(socket = %file.path().display(), "the registration socket was removed; made again");
                    self.listener = listener;
                    self.file = file;
                }
                Err(source) => return Lost::new(self.file.path(), source),
            }
        }
    }

    /// Serves until the socket can no longer be found.
    async fn answer(&self, answers: Answers) -> io::Result<()> {
        let routes = Routes::new(RegistrationServer::new(answers));
        let listener = Listener::Unix(self.listener.try_clone()?);
        let (removed_sender, removed) = tokio::sync::oneshot::channel();
        let serving = serve::serve(listener, routes, async { drop(removed.await) }, GRACE);
        let watching = async {
            while self.file.holder() == Holder::This {
                tokio::time::sleep(PAUSE).await;
            }
            let _ = removed_sender.send(());
            std::future::pending().await
        };
        tokio::select! {
            ended = serving => ended.map_err(io::Error::other),
            never = watching => never,
        }
    }
}

/// The answers to kubelet.
#[derive(Debug)]
struct Answers {
    endpoint: String,
    registration_state: Arc<RegistrationState>,
}

#[tonic::async_trait]
impl Service for Answers {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: KIND.to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.registration_state.record_status(status.plugin_registered, &status.error);
        if status.plugin_registered {
            tracing::info!("kubelet has registered the driver");
        } else {
            tracing::error!(reason = status.error, "kubelet refuses the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(directory: &Path) -> RegistrationTarget {
        RegistrationTarget { directory: directory.to_owned(), endpoint: "/csi.sock".into() }
    }

    #[test]
    fn policy_names_the_registration_socket() {
        let row = ebs_csi_policy::profile::NODE_AGENT.socket("--plugin-registration-path");
        assert_eq!(row.and_then(|row| row.file), Some(SOCKET));
    }

    #[test]
    fn the_socket_of_a_stock_registrar_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let former = dir.path().join(FORMER_SOCKET);
        drop(UnixListener::bind(&former).unwrap());
        target(dir.path()).remove_former();
        assert!(!former.exists());
        // Most starts find no former socket.
        target(dir.path()).remove_former();
    }

    #[test]
    fn non_socket_at_former_path_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let former = dir.path().join(FORMER_SOCKET);
        std::fs::write(&former, "data").unwrap();
        target(dir.path()).remove_former();
        assert!(former.exists());
    }

    #[tokio::test]
    async fn withdrawn_registration_socket_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!withdraw(dir.path()).unwrap());
        let served = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        assert!(withdraw(dir.path()).unwrap());
        assert!(!dir.path().join(SOCKET).exists());
        drop(served);
        drop(UnixListener::bind(dir.path().join(SOCKET)).unwrap());
        assert!(withdraw(dir.path()).unwrap());
    }

    #[tokio::test]
    async fn non_socket_is_not_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(SOCKET), "data").unwrap();
        assert!(withdraw(dir.path()).is_err());
        assert!(dir.path().join(SOCKET).exists());
    }

    #[test]
    fn registration_socket_name_parses_as_uri_authority() {
        let authority = |name: &str| {
            let path = format!("/registration/{name}").replace('/', "%2F");
            path.parse::<http::uri::Authority>().is_ok()
        };
        assert!(authority(SOCKET));
        assert!(!authority(FORMER_SOCKET), "the `@` is no longer needed");
    }
}
