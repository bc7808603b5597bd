//! `ebs-csi-driver-images`: packs the driver's programs into its four images.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ebs_csi_images::{
    Built, Packed, Platform, Release, Settings, build, pinned, sidecars, write_layout,
};

/// Packs the driver's programs into its four images, and writes what belongs beside them.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-driver-images", version)]
struct CommandLine {
    #[command(flatten)]
    release: Release,
    /// The directory of the programs, and what they run on unless that is this machine's platform;
    /// given repeatedly: each image becomes an index of platforms.
    #[arg(long, required = true, value_name = "[PLATFORM=]DIR", value_parser = of_platform)]
    programs: Vec<(Platform, PathBuf)>,
    /// The directory of a platform's Debian packages, as deploy/install/images/unpack-packages
    /// writes it; without it they are this machine's.
    #[arg(long, value_name = "[PLATFORM=]DIR", value_parser = of_platform)]
    packages: Vec<(Platform, PathBuf)>,
    /// The directory to write to.
    #[arg(long)]
    output: PathBuf,
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

fn of_platform(value: &str) -> Result<(Platform, PathBuf), String> {
    let Some((name, directory)) = value.split_once('=') else {
        return Ok((Platform::here(), value.into()));
    };
    let platform =
        Platform::named(name).ok_or_else(|| format!("{name}: linux/amd64 or linux/arm64"))?;
    Ok((platform, directory.into()))
}

fn pack(line: CommandLine) -> Result<(), Box<dyn std::error::Error>> {
    let values = line.release.checkout.join("deploy/install/chart/values.yaml");
    let values = std::fs::read_to_string(&values)
        .map_err(|error| format!("{}: {error}", values.display()))?;
    let sidecars = sidecars(&values)?;
    let packages: BTreeMap<_, _> = line.packages.into_iter().collect();
    let programs: BTreeMap<_, _> = line.programs.into_iter().collect();
    let architectures: Vec<&str> = programs.keys().map(|of| of.architecture()).collect();
    let is_index = programs.len() > 1;
    // The images of one name, one for each platform.
    let mut images: BTreeMap<&'static str, (String, Vec<Packed>)> = BTreeMap::new();
    for (platform, programs) in programs {
        let built = build(&Settings {
            release: line.release.clone(),
            platform,
            programs,
            packages: packages.get(&platform).cloned(),
        })?;
        let mut directory = line.output.clone();
        if is_index {
            directory.push(platform.architecture());
            std::fs::create_dir_all(&directory)?;
        }
        print(platform, &built)?;
        for image in built {
            write_documents(&directory, &image)?;
            let of_name = images.entry(image.name).or_default();
            of_name.0 = image.reference;
            of_name.1.push(image.packed);
        }
    }
    let mut references = Vec::new();
    let mut digests = BTreeMap::new();
    let mut layout = Vec::new();
    for (name, (reference, mut platforms)) in images {
        let packed = match platforms.pop() {
            Some(only) if platforms.is_empty() => only,
            last => {
                platforms.extend(last);
                let joined = Packed::of_platforms(&reference, platforms);
                writeln!(std::io::stdout(), "index  {reference}  {}", joined.digest())?;
                joined
            }
        };
        packed.save(&line.output.join(format!("{name}.tar")))?;
        digests.insert(name, packed.digest().to_owned());
        references.push(reference);
        layout.push(packed);
    }
    references.extend(sidecars);
    let references = format!("{}\n", references.join("\n"));
    std::fs::write(line.output.join("images.txt"), references)?;
    let digests = digests.iter().map(|(name, digest)| (*name, digest.as_str()));
    std::fs::write(line.output.join("digests.yaml"), pinned(&architectures, digests))?;
    write_layout(&line.output.join("layout"), &layout)?;
    Ok(())
}

/// Writes the documents of an image of one platform.
fn write_documents(directory: &Path, image: &Built) -> std::io::Result<()> {
    let write = |suffix, content| {
        std::fs::write(directory.join(format!("{}.{suffix}", image.name)), content)
    };
    write("cdx.json", &image.bill)?;
    write("files.tsv", &image.files)?;
    write("licences.txt", &image.licences)
}

/// Prints the names with what a node downloads for each image, compressed.
fn print(platform: Platform, images: &[Built]) -> std::io::Result<()> {
    let of = platform.architecture();
    let mut out = std::io::stdout().lock();
    for image in images {
        let (size, digest) = (image.packed.size(), image.packed.digest());
        writeln!(out, "{size:9} bytes  {}  {of}  {digest}", image.reference)?;
    }
    let node = images.iter().filter(|image| matches!(image.name, "node-agent" | "mount-helper"));
    let node: usize = node.map(|image| image.packed.size()).sum();
    writeln!(out, "{node:9} bytes  both images of a node  {of}")
}
