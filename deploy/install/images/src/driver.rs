//! The driver's four images: the files in each, and the documents about it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::archive::{Image, Packed, sha256};
use crate::bom;
use crate::contents::{Contents, Entry};
use crate::crates::Workspace;
use crate::debian::{self, Package};
use crate::licence::all_of;
use crate::linked;
use crate::parts::Parts;
use crate::platform::{Platform, System};
use crate::text_input::{output, read};

/// One image for each trust level.
struct Role {
    name: &'static str,
    description: &'static str,
    /// The manifest of the workspace that builds the program.
    manifest: &'static str,
    /// The user that the program has or starts as: `policy/sandbox`.
    user: &'static str,
    has_certificates: bool,
    has_tools: bool,
}

const PLAIN: Role = Role {
    name: "",
    description: "",
    manifest: "Cargo.toml",
    user: "0:0",
    has_certificates: false,
    has_tools: false,
};

const ROLES: [Role; 4] = [
    Role {
        name: "controller",
        description: "CSI Controller service for Amazon EBS",
        user: "65530:65530",
        has_certificates: true,
        ..PLAIN
    },
    Role {
        name: "node-lifecycle",
        description: "Failover and onboarding of nodes with EBS volumes",
        manifest: "controller/node-lifecycle/Cargo.toml",
        user: "65527:65530",
        ..PLAIN
    },
    Role {
        name: "node-agent",
        description: "CSI Node service for Amazon EBS, without privileges",
        ..PLAIN
    },
    Role {
        name: "mount-helper",
        description: "The privileged part of the CSI driver for Amazon EBS on a node",
        has_tools: true,
        ..PLAIN
    },
];

/// Mozilla's certificates as the package has them: a machine's own bundle may hold others.
const CERTIFICATES: &str = "/usr/share/ca-certificates/mozilla";
/// Where programs look for certificates: all in one file.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What the tools read besides the disk.
const TOOL_CONFIGURATION: &str = "/etc/mke2fs.conf";

/// What the images of all platforms have in common.
#[derive(Debug, Clone, clap::Args)]
pub struct Release {
    /// The checkout whose programs these are.
    #[arg(long, default_value = ".")]
    pub checkout: PathBuf,
    /// Prefix of the images' names, which may begin with a registry.
    #[arg(long)]
    pub repository: String,
    /// The images' tag.
    #[arg(long)]
    pub tag: String,
    /// The release of the driver, for a label.
    #[arg(long = "release", id = "release")]
    pub version: String,
    /// The commit of the sources, for a label.
    #[arg(long)]
    pub revision: Option<String>,
    /// The creation time by RFC 3339, for a label.
    #[arg(long)]
    pub created: Option<String>,
    /// Where the sources are published, for a label.
    #[arg(long)]
    pub source: Option<String>,
    /// gzip level of the layers, 0 to 9.
    #[arg(long, default_value_t = 9)]
    pub compression: u32,
}

/// What the images of one platform are made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What all platforms have in common.
    pub release: Release,
    /// What the programs run on.
    pub platform: Platform,
    /// The directory of the programs `ebs-csi-controller` and so on.
    pub programs: PathBuf,
    /// The directory of unpacked Debian packages of the platform: e2fsprogs and xfsprogs with what
    /// they need. Without it, the packages are this machine's.
    pub packages: Option<PathBuf>,
}

/// An image and the documents about it.
#[derive(Debug)]
pub struct Built {
    /// The name without the repository's prefix, such as `mount-helper`.
    pub name: &'static str,
    /// The name in a registry, such as `ebs-csi-mount-helper:v1`.
    pub reference: String,
    /// The image.
    pub packed: Packed,
    /// The bill of materials, CycloneDX in JSON.
    pub bill: String,
    /// The files, one a line.
    pub files: String,
    /// The texts of all licences.
    pub licences: String,
}

/// The part of `policy/tools.toml` that names programs.
#[derive(Debug, Deserialize)]
struct Tool {
    path: PathBuf,
}

/// Makes the four images.
///
/// # Errors
/// Returns what is missing on this machine, or cannot be read.
pub fn build(settings: &Settings) -> Result<Vec<Built>, String> {
    let target = settings.platform.target();
    let mut workspaces: BTreeMap<&str, Workspace> = BTreeMap::new();
    for role in &ROLES {
        if !workspaces.contains_key(role.manifest) {
            let workspace =
                Workspace::read(&settings.release.checkout.join(role.manifest), &target)?;
            workspaces.insert(role.manifest, workspace);
        }
    }
    let build = |role: &Role| build_image(role, settings, &workspaces[role.manifest]);
    ROLES.iter().map(build).collect()
}

fn build_image(role: &Role, settings: &Settings, workspace: &Workspace) -> Result<Built, String> {
    let program_name = format!("ebs-csi-{}", role.name);
    let program = settings.programs.join(&program_name);
    let program_path = format!("/usr/bin/{program_name}");

    let mut contents = Contents::default();
    let mut add_file = |source: &Path, path: &Path| {
        contents.add_file(source, path).map_err(|error| error.to_string())
    };
    add_file(&program, Path::new(&program_path))?;
    let machine = System::here();
    let root = settings.packages.as_deref().unwrap_or(Path::new("/"));
    let system = System::below(settings.platform, root);
    let files = system_files(role, &system, &program, &settings.release.checkout)?;
    for file in &files {
        add_file(&system.file(file), file)?;
    }
    if role.has_tools {
        let configuration = read(&settings.release.checkout.join("policy/mke2fs.conf"))?;
        add_content(&mut contents, TOOL_CONFIGURATION, configuration.into_bytes())?;
    }
    let mut certificates = BTreeSet::new();
    if role.has_certificates {
        certificates = certificates_of_mozilla()?;
        let texts = certificates.iter().map(|file| read(file));
        let bundle = texts.collect::<Result<String, _>>()?;
        add_content(&mut contents, BUNDLE, bundle.into_bytes())?;
    }
    // The distribution's links; the policy names the directories below /usr.
    for name in ["lib", "lib64", "sbin"] {
        if files.iter().any(|file| file.starts_with(Path::new("/usr").join(name))) {
            let link = Entry::Link(Path::new("usr").join(name));
            let path = Path::new("/").join(name);
            contents.add(&path, link).map_err(|error| error.to_string())?;
        }
    }

    let crates = workspace.linked(&program_name)?;
    let mut parts = Parts::default();
    parts.add_crates(&crates, &program_path)?;
    parts.add_standard_library(&crates)?;
    let mut packages = debian::packages_of(&system, &files)?;
    for (file, package) in &packages {
        parts.add_package(&system, package, file.display().to_string())?;
    }
    let libraries = linked_c_libraries(settings.platform, &program)?;
    for package in debian::packages_of(&machine, &libraries)?.into_values() {
        parts.add_package(&machine, &package, program_path.clone())?;
    }
    // They are the same on every architecture.
    for package in debian::packages_of(&machine, &certificates)?.into_values() {
        parts.add_package(&machine, &package, BUNDLE.to_owned())?;
        packages.insert(BUNDLE.into(), package);
    }
    let licences = parts.texts.document(&format!("the image {program_name}"));
    let licences_path = format!("/usr/share/doc/{program_name}/licences.txt");
    add_content(&mut contents, &licences_path, licences.clone().into_bytes())?;

    let name = format!("{}-{}", settings.release.repository, role.name);
    let reference = format!("{name}:{}", settings.release.tag);
    let image = Image {
        reference: reference.clone(),
        platform: settings.platform,
        entrypoint: vec![program_path],
        user: role.user.to_owned(),
        labels: labels(role, settings, &parts),
        created: settings.release.created.clone(),
        compression: settings.release.compression,
        ..Image::default()
    };
    let packed = Packed::new(&image, &contents).map_err(|error| format!("{reference}: {error}"))?;
    let description = bom::ImageDescription {
        name: &name,
        version: &settings.release.version,
        digest: packed.digest(),
        created: settings.release.created.as_deref(),
    };
    let bill = bom::bill(&description, &parts.all(), &parts.edges);
    Ok(Built {
        name: role.name,
        reference,
        bill: format!("{bill:#}\n"),
        files: listing(&contents, &packages, &settings.release.version),
        licences,
        packed,
    })
}

fn add_content(contents: &mut Contents, path: &str, content: Vec<u8>) -> Result<(), String> {
    let entry = Entry::File(0o644, content);
    contents.add(Path::new(path), entry).map_err(|error| error.to_string())
}

fn labels(role: &Role, settings: &Settings, parts: &Parts) -> BTreeMap<String, String> {
    let licences = all_of(parts.parts.values().flat_map(|part| &part.licences));
    let release = &settings.release;
    let labels = [
        ("title", Some(format!("ebs-csi-{}", role.name))),
        ("description", Some(role.description.to_owned())),
        ("version", Some(release.version.clone())),
        ("licenses", Some(licences)),
        ("revision", release.revision.clone()),
        ("created", release.created.clone()),
        ("source", release.source.clone()),
    ];
    let known = labels.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value)).collect()
}

/// Returns the files of the distribution in an image, which stand at the same paths in the system:
/// the tools, and the libraries of all programs.
fn system_files(
    role: &Role,
    system: &System,
    program: &Path,
    checkout: &Path,
) -> Result<BTreeSet<PathBuf>, String> {
    let mut programs = vec![program.to_owned()];
    let mut files = BTreeSet::new();
    if role.has_tools {
        for tool in tools(&checkout.join("policy/tools.toml"))? {
            let at = system.file(&tool);
            if !at.exists() {
                return Err(format!("{}: install e2fsprogs and xfsprogs", at.display()));
            }
            files.insert(tool);
            programs.push(at);
        }
    }
    files.extend(linked::libraries(system, &programs)?);
    Ok(files)
}

fn tools(policy: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let text = read(policy)?;
    let tools: BTreeMap<String, Tool> =
        toml::from_str(&text).map_err(|error| format!("{}: {error}", policy.display()))?;
    Ok(tools.into_values().map(|tool| tool.path).collect())
}

/// Returns the certificates of Mozilla's list.
fn certificates_of_mozilla() -> Result<BTreeSet<PathBuf>, String> {
    let failed = |error| format!("{CERTIFICATES}: {error}: install ca-certificates");
    let entries = std::fs::read_dir(CERTIFICATES).map_err(failed)?;
    entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

/// Returns the C libraries that a static program holds.
fn linked_c_libraries(platform: Platform, program: &Path) -> Result<BTreeSet<PathBuf>, String> {
    if !linked::is_static(program)? {
        return Ok(BTreeSet::new());
    }
    let library = |name: &&str| {
        let path =
            output(Command::new(platform.compiler()).arg(format!("-print-file-name={name}")))?;
        let path = Path::new(path.trim_end());
        path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
    };
    ["libc.a", "libgcc_eh.a"].iter().map(library).collect()
}

/// Returns the table of the files: mode, owner, bytes, package, version, digest, path.
fn listing(contents: &Contents, packages: &BTreeMap<PathBuf, Package>, version: &str) -> String {
    let mut listing = String::from("mode\towner\tbytes\tpackage\tversion\tsha256\tpath\n");
    for (path, entry) in contents.iter() {
        let path = Path::new("/").join(path);
        let shown = path.display();
        let own = ("ebs-csi", version);
        let line = match entry {
            Entry::Directory(mode) => format!("d{mode:03o}\t0:0\t0\t-\t-\t-\t{shown}"),
            Entry::Link(to) => format!("l777\t0:0\t0\t-\t-\t-\t{shown} -> {}", to.display()),
            Entry::File(mode, content) => {
                let package = packages.get(&path);
                let (package, version) =
                    package.map_or(own, |package| (&package.name, &package.version));
                let (bytes, digest) = (content.len(), sha256(content));
                format!("-{mode:03o}\t0:0\t{bytes}\t{package}\t{version}\t{digest}\t{shown}")
            }
        };
        listing.push_str(&line);
        listing.push('\n');
    }
    listing
}
