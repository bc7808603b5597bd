//! The sockets, the clock and the timer around the simulator.

pub(crate) mod control_client;
mod control_routes;
mod ec2_endpoint;
mod imds;

use crate::devices::{DeviceMode, LoopDevices};
use crate::scenario::{InstanceSeed, Scenario};
use crate::sim::{Sim, SimError};
use crate::time::{Clock, Millis};
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The options of `serve`.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The directory of the state and the images.
    pub state_dir: PathBuf,
    /// The initial scenario.
    pub scenario: Scenario,
    /// How an attached volume appears.
    pub devices: DeviceMode,
    /// The address of EC2 and STS; loopback only.
    pub listen: SocketAddr,
}

/// The reason why the simulator cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Sim(#[from] SimError),
    #[error("--listen {0}: only loopback addresses are served, as 127.0.0.1:0")]
    NotLoopback(SocketAddr),
    #[error("state directory {0}: {1}")]
    StateDir(PathBuf, String),
    #[error("{0}: {1}")]
    Socket(String, io::Error),
}

/// The maximum size of a request body, in bytes.
const MAX_BODY: usize = 1 << 20;

/// The maximum age of a statistics page.
const STATISTICS_AGE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Shared {
    sim: Mutex<Sim>,
    clock: Clock,
    timer: AtomicI64,
    wake: Notify,
    /// The number of outages and the duration of the last; connections end when the value changes.
    outage: watch::Sender<(u64, Duration)>,
    metadata: Mutex<BTreeMap<String, SocketAddr>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    ready: Mutex<Value>,
}

impl Shared {
    fn now(&self) -> Millis {
        self.clock.now()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).push(tokio::spawn(task));
    }

    /// Calls `f` with the simulator, and wakes the timer if something is now due earlier than
    /// before.
    fn with_sim<T>(&self, f: impl FnOnce(&mut Sim, Millis) -> T) -> T {
        let now = self.now();
        let mut sim = lock(&self.sim);
        let out = f(&mut sim, now);
        if let Some(at) = sim.next_due()
            && at.0 < self.timer.load(Ordering::Acquire)
        {
            self.wake.notify_one();
        }
        out
    }
}

/// Locks a mutex, even after a panic in one request: the data is at worst one step behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running simulator.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    control: PathBuf,
    _lock: File,
}

impl Server {
    /// Starts to serve on the current tokio runtime.
    ///
    /// # Errors
    /// Fails if the scenario, the state directory or a socket cannot be used.
    pub async fn start(options: ServerOptions) -> Result<Self, ServeError> {
        if !options.listen.ip().is_loopback() {
            return Err(ServeError::NotLoopback(options.listen));
        }
        let dir_error = |e: String| ServeError::StateDir(options.state_dir.clone(), e);
        let lock_file = claim(&options.state_dir).map_err(dir_error)?;
        let state_dir =
            std::fs::canonicalize(&options.state_dir).map_err(|e| dir_error(e.to_string()))?;
        let devices = match options.devices {
            DeviceMode::None => Ok(None),
            DeviceMode::Loop => LoopDevices::new(&state_dir).map(Some),
        };
        let devices = devices.map_err(|e| dir_error(format!("--devices: {e}")))?;
        let clock = Clock::start();
        let sim = Sim::with_devices(&options.scenario, devices, clock.now())?;
        let shared = Arc::new(Shared {
            sim: Mutex::new(sim),
            clock,
            timer: AtomicI64::new(i64::MAX),
            wake: Notify::new(),
            outage: watch::Sender::new((0, Duration::ZERO)),
            metadata: Mutex::new(BTreeMap::new()),
            tasks: Mutex::new(Vec::new()),
            ready: Mutex::new(Value::Null),
        });
        let ec2 = ec2_endpoint::listen(&shared, options.listen).await?;
        for id in options.scenario.instances.iter().map(|instance| &instance.id) {
            imds::listen(&shared, id).await?;
        }
        let control = state_dir.join("control.sock");
        control_routes::listen(&shared, &control)?;
        shared.spawn(timer(Arc::clone(&shared)));
        if options.devices == DeviceMode::Loop {
            shared.spawn(statistics(Arc::clone(&shared)));
        }
        *lock(&shared.ready) = json!({
            "ec2": format!("http://{ec2}"),
            "control": control.display().to_string(),
        });
        Ok(Self { shared, control, _lock: lock_file })
    }

    /// Returns what `serve` prints when it is ready: all addresses.
    pub fn ready(&self) -> Value {
        ready(&self.shared)
    }

    /// Returns the EC2 and STS endpoint.
    pub fn ec2(&self) -> String {
        self.ready()["ec2"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the path of the control socket.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Calls `f` with the simulator and the current simulated time.
    pub fn with_sim<T>(&self, f: impl FnOnce(&mut Sim, Millis) -> T) -> T {
        self.shared.with_sim(f)
    }

    /// Closes all connections and sockets. State, images and attached devices stay.
    pub fn shutdown(&self) {
        for task in lock(&self.shared.tasks).drain(..) {
            task.abort();
        }
        self.shared.outage.send_modify(|o| o.0 += 1);
        let _ = std::fs::remove_file(&self.control);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn ready(shared: &Shared) -> Value {
    let mut out = lock(&shared.ready).clone();
    let imds: BTreeMap<String, String> = lock(&shared.metadata)
        .iter()
        .map(|(id, at)| (id.clone(), format!("http://{at}")))
        .collect();
    let sim = lock(&shared.sim);
    let dev: BTreeMap<&String, PathBuf> =
        imds.keys().filter_map(|id| Some((id, sim.devices.as_ref()?.dev_dir(id)))).collect();
    out["dev_dirs"] = json!(dev);
    out["imds"] = json!(imds);
    out
}

async fn serve<F: Future<Output = io::Result<Response<ReplyBody>>>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    respond: impl Fn(Request<Incoming>) -> F,
) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service_fn(respond));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn read(body: Incoming) -> io::Result<Bytes> {
    let body = Limited::new(body, MAX_BODY).collect().await;
    Ok(body.map_err(io::Error::other)?.to_bytes())
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

type ReplyBody = UnsyncBoxBody<Bytes, io::Error>;

fn whole(bytes: impl Into<Bytes>) -> ReplyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

async fn add_instance(shared: &Arc<Shared>, seed: &InstanceSeed) -> Result<Value, ServeError> {
    shared.with_sim(|sim, now| sim.add_instance(seed, now))?;
    imds::listen(shared, &seed.id).await?;
    let all = ready(shared);
    Ok(json!({"id": seed.id, "imds": all["imds"][&seed.id], "dev_dir": all["dev_dirs"][&seed.id]}))
}

async fn statistics(shared: Arc<Shared>) {
    loop {
        let failed = shared.with_sim(|sim, _| sim.devices.as_ref()?.write_statistics_pages().err());
        if let Some(error) = failed {
            tracing::warn!(%error, "the statistics pages of volumes are old");
        }
        tokio::time::sleep(STATISTICS_AGE).await;
    }
}

/// Applies the changes that are due, so that devices appear without a request.
async fn timer(shared: Arc<Shared>) {
    loop {
        let due = shared.with_sim(|sim, now| {
            sim.settle(now);
            let due = sim.next_due();
            // Stored under the simulator's lock: a later call that makes something due earlier
            // compares with this value.
            let at = due.map_or(i64::MAX, |d| d.0);
            shared.timer.store(at, Ordering::Release);
            due
        });
        // At least a millisecond, which is the clock's resolution.
        let wait =
            due.map_or(Duration::MAX, |at| Duration::from_millis(at.since(shared.now()).max(1)));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.wake.notified() => {}
        }
    }
}

/// What a run with devices leaves in its state directory. The last four are directories.
const OWN: [&str; 5] = ["loops.json", "volumes", "snapshots", "dev", "nodes"];

/// Creates or claims a state directory. The lock lasts as long as the returned file is open.
pub(super) fn claim(dir: &Path) -> Result<File, String> {
    std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
    let lock = File::create(dir.join("lock")).map_err(|e| e.to_string())?;
    lock.try_lock().map_err(|_| "is in use by another ec2-sim: stop that one first".to_owned())?;
    match OWN.iter().find(|name| dir.join(name).exists()) {
        Some(name) => Err(format!(
            "has a {name}: remove what an earlier run left with `ec2-sim clean`, or choose an empty directory"
        )),
        None => Ok(lock),
    }
}
