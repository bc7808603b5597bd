//! The names of images: what a registry has to hold, and what the chart can pin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

/// The part of the chart's values that names images.
#[derive(Debug, Deserialize)]
struct Values {
    sidecars: BTreeMap<String, Sidecar>,
}

#[derive(Debug, Deserialize)]
struct Sidecar {
    image: Option<ImageName>,
}

#[derive(Debug, Deserialize)]
struct ImageName {
    repository: String,
    tag: String,
}

/// Returns the images of the sidecars that the chart's values name, such as
/// `csi-attacher:v4.12.0`.
///
/// # Errors
/// Returns why the values cannot be read.
pub fn sidecars(values: &str) -> Result<Vec<String>, String> {
    let values: Values =
        serde_saphyr::from_str(values).map_err(|error| format!("values.yaml: {error}"))?;
    let images = values.sidecars.into_values().filter_map(|sidecar| sidecar.image);
    let mut references: Vec<String> =
        images.map(|image| format!("{}:{}", image.repository, image.tag)).collect();
    references.sort();
    Ok(references)
}

/// Returns a values file that pins the driver's images to digests, and its pods to nodes of these
/// architectures. `images` are names as in `mount-helper` with their digests.
pub fn pinned<'a>(
    architectures: &[&str],
    images: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut values = format!("images:\n  architectures: [{}]\n", architectures.join(", "));
    for (name, digest) in images {
        let _ = writeln!(values, "  {}: {{digest: \"{digest}\"}}", values_key(name));
    }
    values
}

/// Returns the key that the chart has for an image: `mountHelper` for `mount-helper`.
fn values_key(name: &str) -> String {
    let mut words = name.split('-');
    let mut key = words.next().unwrap_or("").to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        key.push_str(&first.to_ascii_uppercase());
        key.push_str(rest);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_without_image_are_left_out() {
        let values = "image: {tag: x}\nsidecars:\n  b: {image: {repository: b, tag: v1}}\n  \
                      c: {}\n  a: {image: {repository: r/a, tag: v2, pullPolicy: ''}}\n";
        assert_eq!(sidecars(values).unwrap(), ["b:v1", "r/a:v2"]);
    }

    #[test]
    fn pinned_values_have_the_charts_keys() {
        let values =
            pinned(&["amd64", "arm64"], [("controller", "sha256:1"), ("mount-helper", "sha256:2")]);
        let expected = "images:\n  architectures: [amd64, arm64]\n  controller: {digest: \"sha256:1\"}\n  \
                        mountHelper: {digest: \"sha256:2\"}\n";
        assert_eq!(values, expected);
    }
}
