//! `ebs-csi-driver-images`: packs the driver's programs into its four images.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ebs_csi_images::{Built, Settings, build, pinned, sidecars, write_layout};

/// Packs the driver's programs into its four images, and writes what belongs beside them.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-driver-images", version)]
struct CommandLine {
    /// The checkout whose programs these are.
    #[arg(long, default_value = ".")]
    checkout: PathBuf,
    /// The directory of the programs.
    #[arg(long)]
    programs: PathBuf,
    /// The directory to write to.
    #[arg(long)]
    output: PathBuf,
    /// Prefix of the images' names, which may begin with a registry.
    #[arg(long)]
    repository: String,
    /// The images' tag.
    #[arg(long)]
    tag: String,
    /// The release of the driver, for a label.
    #[arg(long)]
    release: String,
    /// The commit of the sources, for a label.
    #[arg(long)]
    revision: Option<String>,
    /// The creation time by RFC 3339, for a label.
    #[arg(long)]
    created: Option<String>,
    /// Where the sources are published, for a label.
    #[arg(long)]
    source: Option<String>,
    /// gzip level of the layers, 0 to 9.
    #[arg(long, default_value_t = 9)]
    compression: u32,
}

fn main() -> ExitCode {
    match pack(CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ebs-csi-driver-images: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pack(line: CommandLine) -> Result<(), Box<dyn std::error::Error>> {
    let values = line.checkout.join("deploy/chart/values.yaml");
    let values = std::fs::read_to_string(&values)
        .map_err(|error| format!("{}: {error}", values.display()))?;
    let sidecars = sidecars(&values)?;
    let images = build(&Settings {
        checkout: line.checkout,
        programs: line.programs,
        repository: line.repository,
        tag: line.tag,
        version: line.release,
        revision: line.revision,
        created: line.created,
        source: line.source,
        compression: line.compression,
    })?;
    let write = |name: String, content: &str| std::fs::write(line.output.join(name), content);
    for image in &images {
        let archive = line.output.join(format!("{}.tar", image.name));
        image.packed.save(&archive)?;
        write(format!("{}.cdx.json", image.name), &image.bill)?;
        write(format!("{}.files.tsv", image.name), &image.files)?;
        write(format!("{}.licences.txt", image.name), &image.licences)?;
    }
    let mut references: Vec<&str> = images
        .iter()
        .map(|image| image.reference.as_str())
        .collect();
    references.extend(sidecars.iter().map(String::as_str));
    write(
        "images.txt".to_owned(),
        &format!("{}\n", references.join("\n")),
    )?;
    let digests = images
        .iter()
        .map(|image| (image.name, image.packed.digest()));
    write("digests.yaml".to_owned(), &pinned(digests))?;
    print(&images)?;
    let packed: Vec<_> = images.into_iter().map(|image| image.packed).collect();
    write_layout(&line.output.join("layout"), &packed)?;
    Ok(())
}

/// Prints the names with what a node downloads for each image, compressed.
fn print(images: &[Built]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for image in images {
        let (size, digest) = (image.packed.size(), image.packed.digest());
        writeln!(out, "{:9} bytes  {}  {digest}", size, image.reference)?;
    }
    let node = images
        .iter()
        .filter(|image| matches!(image.name, "node-agent" | "mount-helper"));
    let node: usize = node.map(|image| image.packed.size()).sum();
    writeln!(out, "{node:9} bytes  both images of a node")
}
