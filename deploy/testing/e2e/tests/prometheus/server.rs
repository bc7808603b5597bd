//! A Prometheus on loopback, and its HTTP API.

use std::io::Result;
use std::path::PathBuf;
use std::process::Command;

use ebs_csi_e2e::repository::root;
use ebs_csi_sandbox::World;
use form_urlencoded::Serializer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a ServiceMonitor of the chart makes Prometheus scrape.
pub(crate) struct Target {
    /// The name of the Service.
    pub(crate) job: &'static str,
    pub(crate) pod: &'static str,
    pub(crate) address: &'static str,
}

/// A running Prometheus, which scrapes and evaluates each second.
pub(crate) struct Prometheus(&'static str);

impl Prometheus {
    /// Starts the program at `address`, with the alert rules of `deploy/install/manifests`.
    pub(crate) fn start(
        world: &mut World,
        program: PathBuf,
        address: &'static str,
        targets: &[Target],
    ) -> Self {
        let rules = root().canonicalize().expect("the repository").join("deploy/install/manifests");
        let scraped = targets.iter().map(|Target { job, pod, address }| {
            let labels = json!({"cluster": "blue", "namespace": "kube-system", "pod": pod});
            json!({"job_name": job, "static_configs": [{"targets": [address], "labels": labels}]})
        });
        let settings = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules.join("*-alerts.yaml")],
            "scrape_configs": scraped.collect::<Vec<_>>(),
        });
        let file = world.state_dir().join("prometheus.yml");
        // YAML includes JSON.
        std::fs::write(&file, settings.to_string()).expect("the settings");
        let data = world.state_dir().join("prometheus");
        let started = world.start_beside("prometheus", move || {
            let mut command = Command::new(&program);
            command
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"));
            command
        });
        started.expect("Prometheus can be started");
        Self(address)
    }

    /// Returns the values that a query has now.
    pub(crate) async fn query(&self, query: &str) -> Result<Vec<f64>> {
        let found = self.get("query", &[("query", query)]).await?;
        let series = found["result"].as_array().expect("series");
        let values = series.iter().map(|it| it["value"][1].as_str().expect("a value"));
        Ok(values.map(|it| it.parse().expect("a number")).collect())
    }

    /// Returns the values of a label among the selected series.
    pub(crate) async fn label_values(&self, selector: &str, label: &str) -> Result<Vec<String>> {
        let found = self.get(&format!("label/{label}/values"), &[("match[]", selector)]).await?;
        let values = found.as_array().expect("values").iter();
        Ok(values.map(|it| it.as_str().expect("a value").to_owned()).collect())
    }

    /// Returns the alert rules.
    pub(crate) async fn rules(&self) -> Result<Vec<Value>> {
        let found = self.get("rules", &[]).await?;
        let groups = found["groups"].as_array().expect("groups");
        let rules = groups.iter().flat_map(|it| it["rules"].as_array().expect("rules"));
        Ok(rules.cloned().collect())
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let query = Serializer::new(String::new()).extend_pairs(parameters).finish();
        let mut stream = TcpStream::connect(self.0).await?;
        // The answer to HTTP/1.0 has no chunks.
        let request = format!("GET /api/v1/{path}?{query} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let failed = |why: &str| std::io::Error::other(format!("{parameters:?}: {why}: {answer}"));
        let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed("no answer"))?;
        let body: Value = serde_json::from_str(body).map_err(|e| failed(&e.to_string()))?;
        match body["status"] == "success" {
            true => Ok(body["data"].clone()),
            false => Err(failed("refused")),
        }
    }
}
