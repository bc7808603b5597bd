//! `ebs-csi-images`: packs files into a container image.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ebs_csi_images::{Contents, Entry, Image, Packed};

/// Packs files into a container image from scratch and writes it as an OCI archive.
#[derive(Debug, Parser)]
#[command(name = "ebs-csi-images", version)]
struct CommandLine {
    /// The archive to write.
    #[arg(long)]
    output: PathBuf,
    /// The image's name, such as example.com/driver:v1.
    #[arg(long)]
    reference: String,
    /// The program that a container starts; given repeatedly: also its first arguments.
    #[arg(long, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// Arguments that a pod's `args` replace.
    #[arg(long, allow_hyphen_values = true)]
    command: Vec<String>,
    /// User and group, such as 65530:65530.
    #[arg(long, default_value = "")]
    user: String,
    /// Variables, as NAME=value.
    #[arg(long)]
    env: Vec<String>,
    /// Files, as SOURCE:PATH.
    #[arg(long, value_name = "SOURCE:PATH")]
    file: Vec<String>,
    /// Directory trees, as SOURCE:PATH; links in them are kept.
    #[arg(long, value_name = "SOURCE:PATH")]
    tree: Vec<String>,
    /// Symbolic links, as TARGET:PATH.
    #[arg(long, value_name = "TARGET:PATH")]
    link: Vec<String>,
    /// Empty directories, as PATH or PATH:MODE (octal).
    #[arg(long, value_name = "PATH[:MODE]")]
    directory: Vec<String>,
    /// gzip level of the layer, 0 to 9.
    #[arg(long, default_value_t = 9)]
    compression: u32,
}

fn main() -> ExitCode {
    match pack(CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ebs-csi-images: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn pack(arguments: CommandLine) -> Result<(), Failure> {
    let mut contents = Contents::default();
    for directory in &arguments.directory {
        let (path, mode) = directory.split_once(':').unwrap_or((directory, "755"));
        let mode = u32::from_str_radix(mode, 8).map_err(|error| format!("{directory}: {error}"))?;
        contents.add(Path::new(path), Entry::Directory(mode))?;
    }
    for pair in &arguments.tree {
        let (source, path) = split_pair(pair)?;
        add_tree(&mut contents, Path::new(source), Path::new(path))?;
    }
    for pair in &arguments.file {
        let (source, path) = split_pair(pair)?;
        contents.add_file(Path::new(source), Path::new(path))?;
    }
    for pair in &arguments.link {
        let (target, path) = split_pair(pair)?;
        contents.add(Path::new(path), Entry::Link(target.into()))?;
    }
    let image = Image {
        reference: arguments.reference,
        entrypoint: arguments.entrypoint,
        command: arguments.command,
        user: arguments.user,
        environment: arguments.env,
        compression: arguments.compression,
        ..Image::default()
    };
    Packed::new(&image, &contents)?.save(&arguments.output)?;
    Ok(())
}

fn split_pair(pair: &str) -> Result<(&str, &str), Failure> {
    pair.split_once(':')
        .ok_or_else(|| format!("{pair}: a colon must separate the two paths").into())
}

fn add_tree(contents: &mut Contents, source: &Path, path: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), path.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            contents.add(&to, Entry::Link(std::fs::read_link(&from)?))?;
        } else if kind.is_dir() {
            contents.add(&to, Entry::Directory(0o755))?;
            add_tree(contents, &from, &to)?;
        } else {
            contents.add_file(&from, &to)?;
        }
    }
    Ok(())
}
