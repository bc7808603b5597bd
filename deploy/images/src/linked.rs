//! The shared libraries that ELF programs load, read from the files: nothing is run, so that the
//! programs may be another architecture's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::{DT_NEEDED, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, PT_INTERP};
use elf::endian::AnyEndian;

/// The reason why a program's libraries are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkedError {
    /// The file is no readable ELF file of a known architecture.
    #[error("{0} is no ELF program of a known architecture")]
    Elf(PathBuf),
    /// No directory has the library.
    #[error("{program} needs {library}, which is in none of the loader's directories")]
    Missing {
        /// The file that names the library.
        program: PathBuf,
        /// The library's name.
        library: String,
    },
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, std::io::Error),
}

/// Returns the loader and the libraries of these programs, and of the libraries themselves, at
/// their real directories. A static program has neither.
///
/// # Errors
/// Returns a [`LinkedError`].
pub(crate) fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, LinkedError> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = programs.to_vec();
    while let Some(program) = left.pop() {
        for library in needed(&program)? {
            if found.insert(library.clone()) {
                left.push(library);
            }
        }
    }
    Ok(found)
}

/// Returns whether a program is static: the kernel starts it without a loader.
///
/// # Errors
/// Returns a [`LinkedError`].
pub(crate) fn is_static(program: &Path) -> Result<bool, LinkedError> {
    Ok(needed(program)?.is_empty())
}

/// Returns what one file names.
fn needed(program: &Path) -> Result<Vec<PathBuf>, LinkedError> {
    let content =
        std::fs::read(program).map_err(|error| LinkedError::Read(program.to_owned(), error))?;
    let (directory, interpreter, libraries) =
        names(&content).ok_or_else(|| LinkedError::Elf(program.to_owned()))?;
    let missing = |library: String| LinkedError::Missing {
        program: program.to_owned(),
        library,
    };
    let mut paths = Vec::new();
    if let Some(loader) = interpreter {
        let path = at_real_directory(Path::new(&loader));
        paths.push(path.ok_or_else(|| missing(loader))?);
    }
    let directories = [
        Path::new("/usr/lib").join(directory),
        "/usr/lib64".into(),
        "/usr/lib".into(),
    ];
    for library in libraries {
        let mut candidates = directories.iter().map(|directory| directory.join(&library));
        let path = candidates.find_map(|candidate| at_real_directory(&candidate));
        paths.push(path.ok_or_else(|| missing(library))?);
    }
    Ok(paths)
}

/// Returns the path with its directory resolved and its name kept, if there is such a file: `/lib`
/// is a link to `/usr/lib`, and an image gets the same link.
fn at_real_directory(path: &Path) -> Option<PathBuf> {
    let directory = path.parent()?.canonicalize().ok()?;
    let path = directory.join(path.file_name()?);
    path.exists().then_some(path)
}

/// Returns the architecture's directory of libraries, the loader's path and the libraries' names.
fn names(content: &[u8]) -> Option<(&'static str, Option<String>, Vec<String>)> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(content).ok()?;
    let directory = match (file.ehdr.e_type, file.ehdr.e_machine) {
        (ET_EXEC | ET_DYN, EM_X86_64) => "x86_64-linux-gnu",
        (ET_EXEC | ET_DYN, EM_AARCH64) => "aarch64-linux-gnu",
        _ => return None,
    };
    let interpreter = file.segments()?.iter().find(|s| s.p_type == PT_INTERP);
    let interpreter = match interpreter {
        Some(segment) => {
            let path = file.segment_data(&segment).ok()?;
            let path = path.strip_suffix(&[0]).unwrap_or(path);
            Some(String::from_utf8(path.to_vec()).ok()?)
        }
        None => None,
    };
    let mut libraries = Vec::new();
    if let Some(dynamic) = file.dynamic().ok()? {
        let strings = file.find_common_data().ok()?.dynsyms_strs;
        for entry in dynamic.iter().filter(|entry| entry.d_tag == DT_NEEDED) {
            let name = strings?.get(usize::try_from(entry.d_val()).ok()?).ok()?;
            libraries.push(name.to_owned());
        }
    }
    Some((directory, interpreter, libraries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_program_names_loader_and_c_library() {
        let program = std::env::current_exe().unwrap();
        let found = libraries(std::slice::from_ref(&program)).unwrap();
        let has = |prefix: &str| {
            let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
            let mut names = found.iter().filter_map(name);
            names.any(|name| name.starts_with(prefix))
        };
        assert!(has("libc.so.6") && has("ld-linux-"), "{found:?}");
        assert!(!is_static(&program).unwrap());
    }

    #[test]
    fn file_that_is_no_program_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let found = libraries(&[file.path().to_owned()]);
        assert!(matches!(found, Err(LinkedError::Elf(_))), "{found:?}");
    }
}
