//! A simulator inside the test; the test advances the time.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use ec2_sim::{Millis, Reply, Request, Scenario, Sim, Volume};
use serde_json::{Value, json};

pub const NODE_A: &str = "i-0aaaaaaaaaaaaaaa1";
pub const NODE_B: &str = "i-0bbbbbbbbbbbbbbb2";

pub struct World {
    pub sim: Sim,
    pub now: Millis,
}

impl World {
    pub fn new() -> Self {
        Self::with(json!({}))
    }

    /// Starts a scenario without latency, overridden by these keys.
    pub fn with(over: Value) -> Self {
        let mut scenario = json!({"profile": "instant"});
        if let (Value::Object(scenario), Value::Object(over)) = (&mut scenario, over) {
            scenario.extend(over);
        }
        Self::of(serde_json::from_value(scenario).expect("scenario"))
    }

    pub fn of(scenario: Scenario) -> Self {
        let now = Millis::parse("2026-01-01T00:00:00Z").expect("time");
        let sim = Sim::new(&scenario, now).expect("sim");
        Self { sim, now }
    }

    pub fn step(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.sim.settle(self.now);
    }

    pub fn fault(&mut self, json: &str) {
        let rule = serde_json::from_str(json).expect("rule");
        self.sim.faults.add(rule, self.now);
    }

    pub fn reply(&mut self, action: &str, parameters: &str) -> Reply {
        let request = request("AKID", "us-east-1", action, parameters);
        self.sim.handle(self.now, &request)
    }

    pub fn call(&mut self, action: &str, parameters: &str) -> (u16, String) {
        let reply = self.reply(action, parameters);
        (reply.status, String::from_utf8(reply.body).expect("text"))
    }

    pub fn ok(&mut self, action: &str, parameters: &str) -> String {
        let (status, body) = self.call(action, parameters);
        assert_eq!(status, 200, "{action} {parameters}: {body}");
        body
    }

    /// Makes a call that must fail and returns status, code and message.
    pub fn error(&mut self, action: &str, parameters: &str) -> (u16, String, String) {
        let (status, body) = self.call(action, parameters);
        assert_ne!(status, 200, "{action} {parameters}: {body}");
        (status, text(&body, "Code"), text(&body, "Message"))
    }

    pub fn refused(&mut self, action: &str, parameters: &str, code: &str) {
        assert_eq!(self.error(action, parameters).1, code, "{action} {parameters}");
    }

    /// Makes a call that must fail with status 400, this code and this message.
    pub fn refused_as(&mut self, action: &str, parameters: &str, code: &str, message: &str) {
        let expected = (400, code.to_owned(), message.to_owned());
        assert_eq!(self.error(action, parameters), expected, "{action} {parameters}");
    }

    /// Creates a volume and returns its id; the volume is available. The parameters override the
    /// usual ones.
    pub fn volume(&mut self, more: &str) -> String {
        let parameters = format!("AvailabilityZone=us-east-1a&Size=4&VolumeType=gp3&{more}");
        let body = self.ok("CreateVolume", &parameters);
        self.step(1);
        text(&body, "volumeId")
    }

    pub fn snapshot(&mut self, volume: &str) -> String {
        let body = self.ok("CreateSnapshot", &format!("VolumeId={volume}"));
        text(&body, "snapshotId")
    }

    /// Creates volumes that are attached to an instance, and returns their ids in ascending order.
    pub fn attached(&mut self, instance: &str, count: usize) -> Vec<String> {
        let mut ids: Vec<String> = (0..count).map(|_| self.volume("")).collect();
        for (id, letter) in ids.iter().zip('a'..) {
            self.ok("AttachVolume", &attach(id, instance, &format!("/dev/xvdb{letter}")));
        }
        self.step(1);
        ids.sort();
        ids
    }

    /// Returns the id of an instance's root volume.
    pub fn root(&self, instance: &str) -> String {
        let volumes = self.sim.realm().volumes().values();
        let is_root = |v: &&Volume| v.root && v.attachments.iter().any(|a| a.instance == instance);
        volumes.filter(is_root).map(|v| v.id.clone()).next().expect("a root volume")
    }

    pub fn check_invariants(&self) {
        let found = self.sim.invariants.found();
        assert!(found.is_empty(), "{found:?}");
    }

    /// Returns how many volumes there are, apart from those of the instances.
    pub fn volumes(&self) -> usize {
        let volumes = self.sim.realm().volumes().values();
        volumes.filter(|v| !v.root).count()
    }

    /// Describes an instance.
    pub fn of_instance(&mut self, id: &str) -> String {
        self.ok("DescribeInstances", &format!("InstanceId.1={id}"))
    }

    /// Returns the text of the first element of this name in the reply of DescribeVolumes for one
    /// volume.
    pub fn of_volume(&mut self, id: &str, element: &str) -> String {
        let body = self.ok("DescribeVolumes", &format!("VolumeId.1={id}"));
        text(&body, element)
    }
}

/// Returns the parameters of CreateSnapshots for an instance, without its root volume.
pub fn set_of(instance: &str) -> String {
    format!(
        "InstanceSpecification.InstanceId={instance}&InstanceSpecification.ExcludeBootVolume=true"
    )
}

/// Returns the parameters that exclude data volumes from CreateSnapshots.
pub fn without(volumes: &[String]) -> String {
    let one = |(n, id): (usize, &String)| {
        format!("&InstanceSpecification.ExcludeDataVolumeId.{}={id}", n + 1)
    };
    volumes.iter().enumerate().map(one).collect()
}

/// Returns the parameters that give tags to a new resource.
pub fn tagged(kind: &str, tags: &[(&str, &str)]) -> String {
    let list = tag_list("TagSpecification.1.Tag", tags);
    format!("TagSpecification.1.ResourceType={kind}&{list}")
}

/// Returns tags as the parameters `NAME.1.Key`, `NAME.1.Value`, ….
pub fn tag_list(name: &str, tags: &[(&str, &str)]) -> String {
    let tag = |(n, (key, value)): (u32, &(&str, &str))| {
        format!("{name}.{n}.Key={key}&{name}.{n}.Value={value}")
    };
    (1..).zip(tags).map(tag).collect::<Vec<_>>().join("&")
}

pub fn attach(volume: &str, instance: &str, device: &str) -> String {
    format!("VolumeId={volume}&InstanceId={instance}&Device={device}")
}

/// Returns a signed request; `parameters` is a query string.
pub fn request(key: &str, region: &str, action: &str, parameters: &str) -> Request {
    let (service, version) = match action {
        "GetCallerIdentity" | "AssumeRoleWithWebIdentity" => ("sts", "2011-06-15"),
        _ => ("ec2", "2016-11-15"),
    };
    Request {
        form: format!("Action={action}&Version={version}&{parameters}").into_bytes(),
        authorization: Some(format!(
            "AWS4-HMAC-SHA256 Credential={key}/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        )),
        ..Request::default()
    }
}

/// Splits the rows of a table. A row ends in `|`, because some messages end in a space.
pub fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let rows = table.lines().filter(|row| !row.is_empty());
    rows.map(|row| {
        let cells = row.strip_suffix('|').expect("the end of a row");
        let cells: Vec<&str> = cells.splitn(N, " | ").collect();
        cells.try_into().expect(row)
    })
}

/// Returns the unescaped text of the first element of this name, or an empty string.
pub fn text(body: &str, element: &str) -> String {
    all(body, element).into_iter().next().unwrap_or_default()
}

pub fn all(body: &str, element: &str) -> Vec<String> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    body.split(&open)
        .skip(1)
        .filter_map(|rest| rest.split(&close).next())
        .map(|t| {
            t.replace("&apos;", "'")
                .replace("&quot;", "\"")
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&")
        })
        .collect()
}
