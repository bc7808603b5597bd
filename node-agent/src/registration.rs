//! The driver makes itself known to kubelet: a socket in kubelet's registration directory, on which kubelet asks who is there.
//!
//! The socket is bound while the process may still enter that directory, which on a node belongs to root alone. Later the
//! process holds the socket file and sees when it was removed; it then makes another one where the directory's permissions
//! allow that, and otherwise ends, so that it is started again with the right to make one.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebs_csi_proto::endpoint::Listener;
use ebs_csi_proto::pluginregistration::registration_server::{
    Registration as Service, RegistrationServer,
};
use ebs_csi_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use ebs_csi_proto::{DRIVER_NAME, serve};
use rustix::fs::{Mode, OFlags};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;

/// Name of the socket beneath the registration directory; the stock registrar uses the same.
pub const SOCKET: &str = "ebs.csi.aws.com-reg.sock";
/// The kind of plugin, in kubelet's words.
const KIND: &str = "CSIPlugin";
/// What a CSI driver says of its interface's version.
const VERSION: &str = "1.0.0";
/// Between two looks at the socket file.
const PAUSE: Duration = Duration::from_secs(1);
/// What kubelet's calls get when the process ends; they take no work.
const GRACE: Duration = Duration::from_secs(1);

/// Where to register, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Kubelet's registration directory, as this process sees it.
    pub directory: PathBuf,
    /// The CSI socket, as kubelet sees it.
    pub endpoint: PathBuf,
}

/// A socket in the registration directory that is bound.
#[derive(Debug)]
pub struct Registration {
    path: PathBuf,
    endpoint: String,
    bound: Bound,
}

#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    /// The socket file itself, whoever may see its directory.
    file: std::fs::File,
}

/// The socket was removed and this process may not make another one.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} was removed and cannot be made again: {source}; started anew, the process makes it before it gives up its rights"
)]
pub struct Lost {
    path: String,
    source: io::Error,
}

impl Registration {
    /// Binds the socket. One that an earlier process left behind is replaced, and kubelet sees a new one.
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(wish: &Wish) -> io::Result<Self> {
        let path = wish.directory.join(SOCKET);
        Ok(Self {
            bound: Bound::at(&path)?,
            path,
            endpoint: wish.endpoint.display().to_string(),
        })
    }

    /// The socket file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers kubelet as long as the socket file is there, and makes another one when it was removed. Returns only when
    /// that is not possible.
    pub async fn serve(mut self, metrics: Arc<Metrics>) -> Lost {
        loop {
            let answers = Answers {
                endpoint: self.endpoint.clone(),
                metrics: Arc::clone(&metrics),
            };
            if let Err(source) = self.bound.serve(answers).await {
                return self.lost(source);
            }
            metrics.kubelet_registered(false);
            match Bound::at(&self.path) {
                Ok(bound) => {
                    tracing::warn!(socket = %self.path.display(), "the registration socket was removed; made again");
                    self.bound = bound;
                }
                Err(source) => return self.lost(source),
            }
        }
    }

    fn lost(&self, source: io::Error) -> Lost {
        Lost {
            path: self.path.display().to_string(),
            source,
        }
    }
}

impl Bound {
    fn at(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self {
            listener,
            file: file.into(),
        })
    }

    /// Serves until nobody can find the socket any more.
    async fn serve(&self, answers: Answers) -> io::Result<()> {
        let routes = Routes::new(RegistrationServer::new(answers));
        let listener = Listener::Unix(self.listener.try_clone()?);
        let file = self.file.try_clone()?;
        let removed = async move {
            // A file that cannot be asked is not known to be gone.
            while file.metadata().map_or(1, |found| found.nlink()) > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        };
        serve::serve(listener, routes, removed, GRACE)
            .await
            .map_err(io::Error::other)
    }
}

/// What kubelet is told.
#[derive(Debug)]
struct Answers {
    endpoint: String,
    metrics: Arc<Metrics>,
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
        self.metrics.kubelet_registered(status.plugin_registered);
        if status.plugin_registered {
            tracing::info!("kubelet has registered the driver");
        } else {
            tracing::error!(reason = status.error, "kubelet refuses the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
