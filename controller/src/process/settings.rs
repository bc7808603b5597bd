//! The settings of the EC2 layer and of the CSI service, from the process's configuration.

use std::time::{SystemTime, UNIX_EPOCH};

use ebs_csi_ec2 as ec2;

use super::config::Config;
use crate::csi::service;
use crate::request::tags::{TagSettings, Tags};

pub(super) fn of_ec2(config: &Config) -> ec2::Ec2Settings {
    ec2::Ec2Settings {
        region: config.region.clone(),
        region_of_node: config.region_of_node.clone(),
        ca_bundle: config.ca_bundle.clone(),
        ec2_endpoint: config.ec2_endpoint.clone(),
        sts_endpoint: config.sts_endpoint.clone(),
        credentials_from: config.credentials_from.clone(),
        profile_files: config.profile_files,
        execution_environment: config.execution_environment.clone(),
        rates: config.rates.clone(),
        max_rates: config.max_rates.clone(),
        seed: seed(),
        ..ec2::Ec2Settings::default()
    }
}

/// Returns the settings of the CSI service.
pub(super) fn of_service(config: &Config) -> Result<service::ServiceSettings, String> {
    let mut extra = Tags::new();
    for (flag, text) in
        [("--extra-volume-tags", &config.extra_volume_tags), ("--extra-tags", &config.extra_tags)]
    {
        let tags = TagSettings::parse_extra(text, config.warn_on_invalid_tag);
        extra.extend(tags.map_err(|why| format!("{flag}: {why}"))?);
    }
    Ok(service::ServiceSettings {
        tags: TagSettings {
            extra,
            cluster_id: config.cluster_id.clone(),
            warn_on_invalid: config.warn_on_invalid_tag,
        },
        modify_window: config.modify_window,
        snapshot_takeover: config.snapshot_takeover,
        node_local_volumes: config.node_local_volumes,
        safe_detach: config.safe_detach,
        fence: config.fence,
        old_agents: config.old_agents,
        volume_health: config.volume_health,
    })
}

/// Returns a seed, so that the jitter differs between two replicas that start at once.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use super::*;

    /// Tags of both flags are set, and both flags refuse the driver's own key `CSIVolumeName`.
    #[test]
    fn extra_tags_override_extra_volume_tags() {
        let settings = |flags: &[&str]| {
            let config = Config::read(flags.iter().map(OsString::from), &BTreeMap::new()).unwrap();
            of_service(&config)
        };
        let read = settings(&["--extra-volume-tags=a=1,b=2", "--extra-tags=b=3,c=4"]).unwrap();
        let extra: Vec<_> = read.tags.extra.iter().collect();
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let want = [tag("a", "1"), tag("b", "3"), tag("c", "4")];
        assert!(extra.iter().copied().eq(want.iter().map(|(k, v)| (k, v))));
        for flag in ["--extra-volume-tags", "--extra-tags"] {
            let refused = settings(&[&format!("{flag}=CSIVolumeName=x")]).unwrap_err();
            assert!(refused.contains(flag) && refused.contains("CSIVolumeName"), "{refused}");
            let both = format!("{flag}=CSIVolumeName=x,a=1");
            let lenient = settings(&[&both, "--warn-on-invalid-tag"]).unwrap();
            assert_eq!(lenient.tags.extra.keys().collect::<Vec<_>>(), ["a"], "{flag}");
        }
    }
}
