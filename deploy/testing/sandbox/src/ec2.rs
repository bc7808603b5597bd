//! EC2's own view, read as another user of the account would read it, so that no check relies on
//! the driver.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::world::simulator::Simulator;

/// A volume as in the reply of DescribeVolumes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DescribedVolume {
    /// `vol-…`.
    #[serde(rename = "volumeId")]
    pub id: String,
    /// `available`, `in-use`, …
    pub status: String,
    /// Size in GiB.
    #[serde(rename = "size")]
    pub gib: i64,
    /// `gp3`, …
    #[serde(rename = "volumeType")]
    pub kind: String,
    /// Operations per second.
    pub iops: Option<i64>,
    /// MiB per second.
    pub throughput: Option<i64>,
    /// Instances to which the volume is attached.
    #[serde(rename = "attachmentSet", deserialize_with = "instances", default)]
    pub instances: Vec<String>,
}

/// The elements `item` of a list in a reply.
#[derive(Deserialize)]
struct Items<T> {
    #[serde(rename = "item", default = "Vec::new")]
    all: Vec<T>,
}

fn instances<'de, D: Deserializer<'de>>(set: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Attached {
        #[serde(rename = "instanceId")]
        instance: String,
    }
    let set = Items::<Attached>::deserialize(set)?;
    Ok(set.all.into_iter().map(|attached| attached.instance).collect())
}

fn volumes(xml: &str) -> io::Result<Vec<DescribedVolume>> {
    #[derive(Deserialize)]
    struct Reply {
        #[serde(rename = "volumeSet")]
        set: Items<DescribedVolume>,
    }
    let reply: Reply = quick_xml::de::from_str(xml).map_err(io::Error::other)?;
    Ok(reply.set.all)
}

impl Simulator {
    /// Makes a call as another client of the account. Returns the body of the answer.
    pub async fn call_as_other_client(
        &self,
        action: &str,
        parameters: &Value,
    ) -> io::Result<String> {
        let call = json!({ "action": action, "parameters": parameters });
        let answer = self.post("/v1/as-foreign", &call).await?;
        let body = answer["body"].as_str().unwrap_or_default().to_owned();
        match answer["status"] == 200 {
            true => Ok(body),
            false => Err(io::Error::other(format!("{action} of another client: {body}"))),
        }
    }

    /// Calls DescribeVolumes with one filter.
    pub async fn volumes(&self, filter: &str, value: &str) -> io::Result<Vec<DescribedVolume>> {
        let by_filter = json!({ "Filter.1.Name": filter, "Filter.1.Value.1": value });
        self.describe(by_filter).await
    }

    async fn describe(&self, parameters: Value) -> io::Result<Vec<DescribedVolume>> {
        match self.call_as_other_client("DescribeVolumes", &parameters).await {
            Err(e) if e.to_string().contains("<Code>InvalidVolume.NotFound</Code>") => {
                Ok(Vec::new())
            }
            answer => volumes(&answer?),
        }
    }

    /// Returns the volume of this id, or `None` when EC2 does not know the id.
    pub async fn volume(&self, id: &str) -> io::Result<Option<DescribedVolume>> {
        let by_id = json!({ "VolumeId.1": id });
        Ok(self.describe(by_id).await?.into_iter().next())
    }

    /// Returns whether EC2 shows the volume attached to an instance.
    pub async fn holds(&self, volume: &str, instance: &str) -> io::Result<bool> {
        let shown = self.volume(volume).await?;
        Ok(shown.is_some_and(|shown| shown.instances.iter().any(|of| of == instance)))
    }

    /// Returns the driver's requests in the journal after number `after`.
    pub async fn journal(&self, after: u64) -> io::Result<Vec<Value>> {
        let mut records = Vec::new();
        let mut after = after;
        loop {
            let page = self.get(&format!("/v1/journal?after={after}&limit=1000")).await?;
            let Some(page) = page["records"].as_array().filter(|page| !page.is_empty()) else {
                return Ok(records);
            };
            after = page.last().and_then(|last| last["seq"].as_u64()).unwrap_or(after + 1);
            records.extend(page.iter().filter(|record| record["origin"] != "foreign").cloned());
        }
    }

    /// Returns the number of the last request.
    pub async fn last(&self) -> io::Result<u64> {
        Ok(self.get("/v1/journal?limit=1").await?["last"].as_u64().unwrap_or(0))
    }

    /// Returns the driver's requests after number `after` that changed something or tried to: all
    /// but Describe calls, GetCallerIdentity and dry runs.
    pub async fn mutations(&self, after: u64) -> io::Result<Vec<Value>> {
        let mut records = self.journal(after).await?;
        records.retain(|record| {
            let action = record["action"].as_str().unwrap_or_default();
            !action.starts_with("Describe")
                && !action.starts_with("GetCallerIdentity")
                && record["parameters"]["DryRun"] != "true"
        });
        Ok(records)
    }

    /// Returns how often each mutating action after number `after` had an effect.
    pub async fn effective(&self, after: u64) -> io::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for record in self.mutations(after).await? {
            if record["effects"].as_array().is_some_and(|all| !all.is_empty()) {
                let action = record["action"].as_str().unwrap_or_default();
                *counts.entry(action.to_owned()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// Waits at most 20 s until the driver has sent `action` after number `after`.
    pub async fn request(&self, after: u64, action: &str) -> io::Result<()> {
        for _ in 0..10_000 {
            if self.mutations(after).await?.iter().any(|record| record["action"] == action) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err(io::Error::other(format!("the driver did not send {action} in 20 s")))
    }

    /// Adds a fault rule.
    pub async fn fault(&self, rule: Value) -> io::Result<()> {
        self.post("/v1/faults", &rule).await.map(drop)
    }

    /// Removes all fault rules.
    pub async fn no_faults(&self) -> io::Result<()> {
        self.delete("/v1/faults").await.map(drop)
    }

    /// Makes EC2 refuse connections for `ms` milliseconds.
    pub async fn outage(&self, ms: u64) -> io::Result<()> {
        self.post("/v1/outage", &json!({ "for_ms": ms })).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "<DescribeVolumesResponse><volumeSet>\
        <item><volumeId>vol-1</volumeId><size>4</size><status>in-use</status>\
        <attachmentSet><item><volumeId>vol-1</volumeId><instanceId>i-1</instanceId><status>attached</status></item>\
        <item><instanceId>i-2</instanceId><status>attaching</status></item></attachmentSet>\
        <tagSet><item><key>k</key><value>v</value></item></tagSet>\
        <volumeType>gp3</volumeType><iops>3000</iops><throughput>125</throughput></item>\
        <item><volumeId>vol-2</volumeId><size>1</size><status>available</status><attachmentSet/><volumeType>st1</volumeType></item>\
        </volumeSet></DescribeVolumesResponse>";

    #[test]
    fn nested_attachments_are_not_parsed_as_volumes() {
        let described = volumes(ANSWER).unwrap();
        assert_eq!(described.len(), 2);
        assert_eq!(
            described[0],
            DescribedVolume {
                id: "vol-1".into(),
                status: "in-use".into(),
                gib: 4,
                kind: "gp3".into(),
                iops: Some(3000),
                throughput: Some(125),
                instances: vec!["i-1".into(), "i-2".into()],
            }
        );
        assert_eq!(
            (described[1].status.as_str(), described[1].iops, described[1].instances.len()),
            ("available", None, 0)
        );
        assert!(volumes("<R><volumeSet/></R>").unwrap().is_empty());
    }
}
