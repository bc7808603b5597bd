//! The simulated EC2 behind the driver: its state, the requests that it received, and its faults.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::environment::driver::Driver;
use crate::environment::world::TestResult;

impl Driver {
    pub(crate) fn ec2(&self, method: &str, path: &str, body: &Value) -> TestResult<Value> {
        let call = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&self.control)?;
            let body = body.to_string();
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = call().map_err(|e| format!("{method} {path}: {e}"))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.split(' ').nth(1) != Some("200") {
            return Err(format!("{method} {path}: {answer}").into());
        }
        Ok(serde_json::from_str(body)?)
    }

    pub(crate) fn power(&self, instance: &str, how: &str) -> TestResult {
        let path = format!("/v1/instances/{instance}/{how}");
        self.ec2("POST", &path, &json!({"at_once": true})).map(drop)
    }

    /// Sets the results of EC2's status checks of an instance from now on.
    pub(crate) fn checks(&self, instance: &str, found: &Value) -> TestResult {
        let path = format!("/v1/instances/{instance}/checks");
        self.ec2("PUT", &path, found).map(drop)
    }

    /// Creates an instance of that id; `more` describes it as in the simulator's scenario file.
    pub(crate) fn add_instance(&self, id: &str, more: &Value) -> TestResult {
        let mut instance = json!({"id": id, "zone": "us-east-1a"});
        if let (Some(all), Some(more)) = (instance.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        self.ec2("POST", "/v1/instances", &instance).map(drop)
    }

    /// Adds a fault; the simulator defines the form of the rule.
    pub(crate) fn fault(&self, rule: &Value) -> TestResult {
        self.ec2("POST", "/v1/faults", rule).map(drop)
    }

    pub(crate) fn remove_fault(&self, fault: &str) -> TestResult {
        let path = format!("/v1/faults/{fault}");
        self.ec2("DELETE", &path, &json!({})).map(drop)
    }

    pub(crate) fn fault_hits(&self, fault: &str) -> TestResult<u64> {
        let rules = self.ec2("GET", "/v1/faults", &json!({}))?;
        let rule = rules.as_array().into_iter().flatten().find(|rule| rule["id"] == fault);
        let hits = rule.and_then(|rule| rule["hits"].as_u64());
        Ok(hits.ok_or_else(|| format!("there is no fault {fault}: {rules}"))?)
    }

    fn attachments_of(&self, volume: &str) -> TestResult<Vec<Value>> {
        let state = self.ec2("GET", "/v1/state", &json!({}))?;
        let realms = state["realms"].as_array().into_iter().flatten();
        let mut volumes =
            realms.flat_map(|realm| realm["volumes"].as_array().into_iter().flatten());
        let found = volumes.find(|found| found["id"] == volume);
        let found = found.ok_or_else(|| format!("EC2 has no {volume}"))?;
        Ok(found["attachments"].as_array().cloned().unwrap_or_default())
    }

    pub(crate) fn is_attached(&self, volume: &str, instance: &str) -> TestResult<bool> {
        let attachments = self.attachments_of(volume)?;
        Ok(attachments.iter().any(|at| at["instance"] == instance))
    }

    fn attachment_of(&self, volume: &str) -> TestResult<Value> {
        let first = self.attachments_of(volume)?.into_iter().next();
        Ok(first.ok_or_else(|| format!("EC2 shows no attachment of {volume}"))?)
    }

    pub(crate) fn device(&self, volume: &str) -> TestResult<String> {
        let attachment = self.attachment_of(volume)?;
        Ok(attachment["device"].as_str().ok_or("no device")?.to_owned())
    }

    pub(crate) fn attached_since(&self, volume: &str) -> TestResult<String> {
        let since = self.attachment_of(volume)?["since"].as_i64().ok_or("no time")?;
        Ok(jiff::Timestamp::from_millisecond(since)?.to_string())
    }

    /// Returns the parameters of the driver's requests for this action.
    fn requests(&self, action: &str) -> TestResult<Vec<Value>> {
        let path = format!("/v1/journal?action={action}&limit=10000");
        let journal = self.ec2("GET", &path, &json!({}))?;
        let records = journal["records"].as_array().into_iter().flatten();
        let ours = records.filter(|record| record["origin"] == "sdk");
        Ok(ours.map(|record| record["parameters"].clone()).collect())
    }

    /// Returns the number of the driver's requests to stop an instance, dry runs included.
    pub(crate) fn stop_requests(&self, instance: &str) -> TestResult<usize> {
        let all = self.requests("StopInstances")?;
        Ok(all.iter().filter(|request| request["InstanceId.1"] == instance).count())
    }

    /// Returns the driver's DetachVolume requests for a volume: from which instance, and whether
    /// with Force.
    pub(crate) fn detach_requests(&self, volume: &str) -> TestResult<Vec<(String, bool)>> {
        let all = self.requests("DetachVolume")?;
        let of_volume = all.iter().filter(|request| request["VolumeId"] == volume);
        let parts = |request: &Value| {
            let instance = request["InstanceId"].as_str().unwrap_or_default();
            (instance.to_owned(), request["Force"] == "true")
        };
        Ok(of_volume.map(parts).collect())
    }

    pub(crate) fn violations(&self) -> TestResult<Vec<String>> {
        let said = self.ec2("GET", "/v1/invariants", &json!({}))?;
        let all = said["violations"].as_array().into_iter().flatten();
        Ok(all.map(Value::to_string).collect())
    }
}
