//! Paths that kubelet or another orchestrator supplies.

use std::fmt;
use std::path::Path;

/// PATH_MAX of the kernel, less the terminating NUL.
const PATH_LIMIT: usize = 4095;
/// NAME_MAX of every relevant file system.
const COMPONENT_LIMIT: usize = 255;

/// An absolute path of normal components: none is empty, `.` or `..`, and none holds a control
/// character. Its length is bounded as the kernel bounds it. The type says nothing about the file
/// at the path: the resolver handles symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KubeletPath(Box<str>);

/// What is wrong with a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a usable path: {problem}")]
pub struct PathError {
    given: String,
    problem: PathProblem,
}

/// The closed list of what can be wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// Does not begin with `/`.
    #[error("it must begin with /")]
    NotAbsolute,
    /// The root directory itself, or nothing.
    #[error("it names no file")]
    Empty,
    /// Two slashes in a row, or one at the end.
    #[error("it holds // or ends with /")]
    EmptyComponent,
    /// A `.` or `..`.
    #[error("it holds . or ..")]
    DotComponent,
    /// A component above 255 bytes.
    #[error("a component is longer than 255 bytes")]
    ComponentTooLong,
    /// Above 4095 bytes.
    #[error("it is longer than 4095 bytes")]
    TooLong,
    /// A NUL, a newline or another control character.
    #[error("it holds a control character")]
    ControlCharacter,
}

impl PathError {
    /// Returns the rule that the path breaks.
    pub const fn problem(&self) -> PathProblem {
        self.problem
    }
}

impl KubeletPath {
    /// Checks a path. Fails with the rule that the path breaks; a trailing slash breaks one,
    /// because two spellings of a path must not name two volumes.
    pub fn parse(given: &str) -> Result<Self, PathError> {
        match problem_of(given) {
            None => Ok(Self(given.into())),
            Some(problem) => Err(PathError { given: given.chars().take(256).collect(), problem }),
        }
    }

    /// Returns the whole path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the whole path, for the file-system functions.
    pub fn as_path(&self) -> &Path {
        Path::new(&*self.0)
    }

    /// Returns the part beneath `root`; `None` when the path is elsewhere or is the root itself.
    pub fn strip_root(&self, root: &Self) -> Option<RelativePath<'_>> {
        self.0.strip_prefix(&*root.0).and_then(|rest| rest.strip_prefix('/')).map(RelativePath)
    }
}

impl fmt::Display for KubeletPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for KubeletPath {
    type Err = PathError;

    fn from_str(given: &str) -> Result<Self, PathError> {
        Self::parse(given)
    }
}

/// The part of a [`KubeletPath`] beneath a root: one or more normal components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath<'a>(&'a str);

impl<'a> RelativePath<'a> {
    /// Returns the path, without a leading slash.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the components, from the root downwards.
    pub fn components(self) -> impl DoubleEndedIterator<Item = &'a str> + Clone {
        self.0.split('/')
    }
}

impl fmt::Display for RelativePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The use of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaceFor {
    /// A staging path.
    Stage,
    /// A staging path where nothing can be staged any more, and which can only be removed.
    Unstage,
    /// A target path that shows a file system.
    PublishFilesystem,
    /// A target path that shows a disk.
    PublishBlock,
    /// A path for statistics alone.
    Stats,
}

/// Where one path of a request may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The field, as in `helper.proto`.
    pub field: &'static str,
    /// The operation attaches or removes something there.
    pub changed: bool,
    /// The path must be an allowed place for one of these uses.
    pub uses: &'static [PlaceFor],
}

fn problem_of(given: &str) -> Option<PathProblem> {
    if given.len() > PATH_LIMIT {
        return Some(PathProblem::TooLong);
    }
    if given.is_empty() || given == "/" {
        return Some(PathProblem::Empty);
    }
    let Some(relative) = given.strip_prefix('/') else {
        return Some(PathProblem::NotAbsolute);
    };
    if given.chars().any(char::is_control) {
        return Some(PathProblem::ControlCharacter);
    }
    relative.split('/').find_map(|component| match component {
        "" => Some(PathProblem::EmptyComponent),
        "." | ".." => Some(PathProblem::DotComponent),
        long if long.len() > COMPONENT_LIMIT => Some(PathProblem::ComponentTooLong),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_absolute_paths_are_accepted() {
        for good in [
            "/a",
            "/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0a/globalmount",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount",
            "/...",
            "/with space/and é",
        ] {
            assert_eq!(KubeletPath::parse(good).unwrap().as_str(), good);
        }
        assert!(KubeletPath::parse(&format!("/{}", "x".repeat(255))).is_ok());
    }

    #[test]
    fn invalid_path_reports_violated_rule() {
        let long_component = format!("/{}", "x".repeat(256));
        let long_path = "/x".repeat(2048);
        for (bad, problem) in [
            ("", PathProblem::Empty),
            ("/", PathProblem::Empty),
            ("var/lib", PathProblem::NotAbsolute),
            ("/var//lib", PathProblem::EmptyComponent),
            ("/var/lib/", PathProblem::EmptyComponent),
            ("/var/../etc", PathProblem::DotComponent),
            ("/var/..", PathProblem::DotComponent),
            ("/./var", PathProblem::DotComponent),
            ("/a\0b", PathProblem::ControlCharacter),
            ("/a\nb", PathProblem::ControlCharacter),
            ("/a\u{9b}b", PathProblem::ControlCharacter),
            (&long_component, PathProblem::ComponentTooLong),
            (&long_path, PathProblem::TooLong),
        ] {
            let error = KubeletPath::parse(bad).unwrap_err();
            assert_eq!(error.problem(), problem, "{bad:?}");
        }
    }

    #[test]
    fn root_is_stripped_only_at_component_boundary() {
        let root = KubeletPath::parse("/var/lib/kubelet").unwrap();
        let inside = KubeletPath::parse("/var/lib/kubelet/pods/u/mount").unwrap();
        let beside = KubeletPath::parse("/var/lib/kubelet-other/pods").unwrap();
        let relative = inside.strip_root(&root).unwrap();
        assert_eq!(relative.as_str(), "pods/u/mount");
        assert_eq!(relative.components().collect::<Vec<_>>(), ["pods", "u", "mount"]);
        assert!(beside.strip_root(&root).is_none());
        assert!(root.strip_root(&root).is_none());
    }
}
