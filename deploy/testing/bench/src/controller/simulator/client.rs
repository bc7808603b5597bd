//! A cheap client of EC2's Query protocol: one persistent connection, requests assembled by hand.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebs_csi_sandbox::ZONE;

use super::{Kind, held_name};
use crate::error::BenchError;
use crate::world::volume_id;

/// The tag that holds a volume's name.
const NAME_TAG: &str = "CSIVolumeName";
/// EC2's limit of values in one filter.
const FILTER_VALUES: usize = 200;

/// A client with its own instance to attach to.
pub(super) struct Client<'w> {
    number: usize,
    instance: String,
    /// The volumes that exist during the whole run and that requests ask about.
    held: &'w [String],
    /// The number of turns so far; it selects the next volume.
    turn: usize,
    stream: BufReader<TcpStream>,
    /// The constant lines of a request.
    head: String,
}

impl<'w> Client<'w> {
    /// Connects to `endpoint`. The client asks about volumes in `held` and attaches to `instance`.
    pub(super) fn new(
        endpoint: &str,
        number: usize,
        instance: &str,
        held: &'w [String],
    ) -> Result<Self, BenchError> {
        let address = endpoint.trim_start_matches("http://");
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        // The simulator accepts any signature; its date is valid for minutes, longer than a
        // run.
        let head = format!(
            "POST / HTTP/1.1\r\nhost: ec2\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             authorization: AWS4-HMAC-SHA256 Credential=AKID/{}/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date, Signature={}\r\n\
             x-amz-date: {date}\r\n",
            &date[..8],
            "0".repeat(64)
        );
        Ok(Self {
            number,
            instance: instance.to_owned(),
            held,
            turn: 0,
            stream: BufReader::new(stream),
            head,
        })
    }

    /// Returns the client's number.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Sends the requests of one turn, each of which must succeed. Returns their number.
    pub(super) fn run_requests(&mut self, kind: Kind) -> Result<usize, BenchError> {
        self.turn += 1;
        // A different volume in each turn and for each client.
        let place = self.turn * 7_919 + self.number;
        let (index, held) = (place % self.held.len(), self.held);
        match kind {
            Kind::LifeCycle => {
                let volume = self.create_one()?;
                self.describe(&volume)?;
                self.attach(&volume)?;
                self.describe(&volume)?;
                self.detach(&volume)?;
                self.describe(&volume)?;
                self.delete(&volume)?;
                Ok(7)
            }
            Kind::ById => {
                self.describe(&held[index])?;
                Ok(1)
            }
            Kind::ByName => {
                let name = held_name(index);
                let form = format!("Filter.1.Name=tag:{NAME_TAG}&Filter.1.Value.1={name}");
                self.find(&form, &held[index])?;
                Ok(1)
            }
            Kind::CreateDelete => {
                let volume = self.create_one()?;
                self.delete(&volume)?;
                Ok(2)
            }
            Kind::AttachDetach => {
                // The client's own volume among the held ones, so that no two clients attach the
                // same volume.
                let volume = &held[self.number];
                self.attach(volume)?;
                self.detach(volume)?;
                Ok(2)
            }
            Kind::ByManyIds => {
                let mut form = "Filter.1.Name=volume-id".to_owned();
                for value in 0..FILTER_VALUES {
                    let id = &held[(index + value) % held.len()];
                    form.push_str(&format!("&Filter.1.Value.{}={id}", value + 1));
                }
                self.find(&form, &held[index])?;
                Ok(1)
            }
        }
    }

    /// Creates a volume of this name. Returns its id.
    pub(super) fn create(&mut self, name: &str) -> Result<String, BenchError> {
        let form = format!(
            "AvailabilityZone={ZONE}&Size=1&VolumeType=gp3&ClientToken={name}&TagSpecification.1.ResourceType=volume\
             &TagSpecification.1.Tag.1.Key={NAME_TAG}&TagSpecification.1.Tag.1.Value={name}"
        );
        let reply = self.call("CreateVolume", &form)?;
        let id = volume_id(&reply).map(str::to_owned);
        id.ok_or_else(|| format!("CreateVolume: no id in {reply}").into())
    }

    fn create_one(&mut self) -> Result<String, BenchError> {
        // Each name is used once, because EC2 remembers the client token after the volume was
        // deleted.
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        self.create(&format!("pvc-{number}"))
    }

    fn describe(&mut self, volume: &str) -> Result<(), BenchError> {
        self.find(&format!("VolumeId.1={volume}"), volume)
    }

    fn find(&mut self, which: &str, volume: &str) -> Result<(), BenchError> {
        let reply = self.call("DescribeVolumes", which)?;
        if reply.contains(volume) {
            return Ok(());
        }
        Err(format!("DescribeVolumes: no {volume} in {reply}").into())
    }

    fn attach(&mut self, volume: &str) -> Result<(), BenchError> {
        let form = format!("VolumeId={volume}&InstanceId={}&Device=/dev/xvdba", self.instance);
        self.call("AttachVolume", &form).map(drop)
    }

    fn detach(&mut self, volume: &str) -> Result<(), BenchError> {
        let form = format!("VolumeId={volume}&InstanceId={}", self.instance);
        self.call("DetachVolume", &form).map(drop)
    }

    fn delete(&mut self, volume: &str) -> Result<(), BenchError> {
        self.call("DeleteVolume", &format!("VolumeId={volume}")).map(drop)
    }

    /// Sends a request and returns the body of the response. Any status but 200 is an error.
    fn call(&mut self, action: &str, parameters: &str) -> Result<String, BenchError> {
        let form = format!("Action={action}&Version=2016-11-15&{parameters}");
        let request = format!("{}content-length: {}\r\n\r\n{form}", self.head, form.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (good, body) = self.read()?;
        if good {
            return Ok(body);
        }
        Err(format!("{action}: {body}").into())
    }

    fn read(&mut self) -> io::Result<(bool, String)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let good = line.starts_with("HTTP/1.1 200");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok((good, body))
    }
}
