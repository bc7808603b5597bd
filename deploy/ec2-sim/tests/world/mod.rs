//! A simulator inside the test, whose time the test moves.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use ec2_sim::devices::NoDevices;
use ec2_sim::time::Millis;
use ec2_sim::{Reply, Request, Scenario, Sim};

pub const NODE_A: &str = "i-0aaaaaaaaaaaaaaa1";
pub const NODE_B: &str = "i-0bbbbbbbbbbbbbbb2";

pub struct World {
    pub sim: Sim,
    pub now: Millis,
    pub scenario: Scenario,
}

impl World {
    pub fn new() -> Self {
        Self::of(Scenario {
            profile: "instant".to_owned(),
            ..Scenario::default()
        })
    }

    pub fn of(scenario: Scenario) -> Self {
        let now = Millis::parse("2026-01-01T00:00:00Z").expect("time");
        let devices = Box::new(NoDevices::in_memory());
        let sim = Sim::new(&scenario, devices, None, now).expect("sim");
        Self { sim, now, scenario }
    }

    pub fn step(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.sim.settle(self.now);
    }

    pub fn fault(&mut self, json: &str) {
        let rule = serde_json::from_str(json).expect("rule");
        self.sim.faults.add(rule, self.now);
    }

    pub fn reply(&mut self, action: &str, parameters: &[(&str, &str)]) -> Reply {
        let request = request("AKID", "us-east-1", action, parameters);
        self.sim.handle(self.now, &request)
    }

    /// Status and body.
    pub fn call(&mut self, action: &str, parameters: &[(&str, &str)]) -> (u16, String) {
        let reply = self.reply(action, parameters);
        (reply.status, String::from_utf8(reply.body).expect("text"))
    }

    /// The body of a call that must succeed.
    pub fn ok(&mut self, action: &str, parameters: &[(&str, &str)]) -> String {
        let (status, body) = self.call(action, parameters);
        assert_eq!(status, 200, "{action} {parameters:?}: {body}");
        body
    }

    /// Status, code and message of a call that must fail.
    pub fn error(&mut self, action: &str, parameters: &[(&str, &str)]) -> (u16, String, String) {
        let (status, body) = self.call(action, parameters);
        assert_ne!(status, 200, "{action} {parameters:?}: {body}");
        (status, text(&body, "Code"), text(&body, "Message"))
    }

    /// The code of a call that must fail.
    pub fn code(&mut self, action: &str, parameters: &[(&str, &str)]) -> String {
        self.error(action, parameters).1
    }

    /// A volume that is available.
    pub fn volume(&mut self, more: &[(&str, &str)]) -> String {
        let mut parameters = vec![
            ("AvailabilityZone", "us-east-1a"),
            ("Size", "4"),
            ("VolumeType", "gp3"),
        ];
        for (k, v) in more {
            parameters.retain(|(name, _)| name != k);
            parameters.push((k, v));
        }
        let body = self.ok("CreateVolume", &parameters);
        self.step(1);
        text(&body, "volumeId")
    }

    /// The first text of an element in the answer of DescribeVolumes for one volume.
    pub fn of_volume(&mut self, id: &str, element: &str) -> String {
        let body = self.ok("DescribeVolumes", &[("VolumeId.1", id)]);
        text(&body, element)
    }
}

pub fn request(key: &str, region: &str, action: &str, parameters: &[(&str, &str)]) -> Request {
    let service = if action == "GetCallerIdentity" {
        "sts"
    } else {
        "ec2"
    };
    let version = if service == "sts" {
        "2011-06-15"
    } else {
        "2016-11-15"
    };
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", action)
        .append_pair("Version", version);
    for (k, v) in parameters {
        form.append_pair(k, v);
    }
    Request {
        form: form.finish().into_bytes(),
        authorization: Some(format!(
            "AWS4-HMAC-SHA256 Credential={key}/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        )),
        ..Request::default()
    }
}

/// The first text of an element, with XML's escapes undone; empty when it is not there.
pub fn text(body: &str, element: &str) -> String {
    all(body, element).into_iter().next().unwrap_or_default()
}

/// The texts of all elements of that name.
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
