//! The shared libraries that ELF programs load, read from the files: nothing is run, so that the
//! programs may be another architecture's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::{DT_NEEDED, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, PT_INTERP};
use elf::endian::AnyEndian;

use crate::platform::{Platform, System};

/// Returns the loader and the libraries of these programs, and of the libraries themselves, at
/// their real directories in the system. A static program has neither.
///
/// # Errors
/// Returns the file that is no program of this architecture, lacks a library or cannot be read.
pub(crate) fn libraries(
    system: &System,
    programs: &[PathBuf],
) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut unread: Vec<PathBuf> = programs.to_vec();
    while let Some(program) = unread.pop() {
        for library in needed_by(system, &program)? {
            if found.insert(library.clone()) {
                unread.push(system.file(&library));
            }
        }
    }
    Ok(found)
}

/// Returns whether a program is static: the kernel starts it without a loader.
///
/// # Errors
/// Returns why the file cannot be read as a program.
pub(crate) fn is_static(program: &Path) -> Result<bool, String> {
    let (_, interpreter, libraries) = read_elf(program)?;
    Ok(interpreter.is_none() && libraries.is_empty())
}

fn read_elf(program: &Path) -> Result<(Platform, Option<String>, Vec<String>), String> {
    let content =
        std::fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
    let not_elf = || format!("{} is no ELF program of a known architecture", program.display());
    parse_elf(&content).ok_or_else(not_elf)
}

/// Returns the loader and the libraries that one file names.
fn needed_by(system: &System, program: &Path) -> Result<Vec<PathBuf>, String> {
    let (platform, interpreter, libraries) = read_elf(program)?;
    if platform != system.platform {
        return Err(format!("{} is a program for {}", program.display(), platform.architecture()));
    }
    let missing = |library: String| {
        let program = program.display();
        format!("{program} needs {library}, which is in none of the loader's directories")
    };
    let mut paths = Vec::new();
    if let Some(loader) = interpreter {
        let path = system.at_real_directory(Path::new(&loader));
        paths.push(path.ok_or_else(|| missing(loader))?);
    }
    let directories =
        [Path::new("/usr/lib").join(platform.libraries()), "/usr/lib64".into(), "/usr/lib".into()];
    for library in libraries {
        let mut candidates = directories.iter().map(|directory| directory.join(&library));
        let path = candidates.find_map(|candidate| system.at_real_directory(&candidate));
        paths.push(path.ok_or_else(|| missing(library))?);
    }
    Ok(paths)
}

/// Returns the platform, the loader's path and the libraries' names.
fn parse_elf(content: &[u8]) -> Option<(Platform, Option<String>, Vec<String>)> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(content).ok()?;
    let platform = match (file.ehdr.e_type, file.ehdr.e_machine) {
        (ET_EXEC | ET_DYN, EM_X86_64) => Platform::Amd64,
        (ET_EXEC | ET_DYN, EM_AARCH64) => Platform::Arm64,
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
    Some((platform, interpreter, libraries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_program_names_loader_and_c_library() {
        let program = std::env::current_exe().unwrap();
        let found = libraries(&System::here(), std::slice::from_ref(&program)).unwrap();
        let has = |prefix: &str| {
            let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
            let mut names = found.iter().filter_map(name);
            names.any(|name| name.starts_with(prefix))
        };
        assert!(has("libc.so.6") && has("ld-linux-"), "{found:?}");
        assert!(!is_static(&program).unwrap());
    }

    #[test]
    fn program_of_other_architecture_is_refused() {
        let other = match Platform::here() {
            Platform::Amd64 => Platform::Arm64,
            Platform::Arm64 => Platform::Amd64,
        };
        let system = System::below(other, Path::new("/"));
        let found = libraries(&system, &[std::env::current_exe().unwrap()]);
        assert!(found.is_err_and(|why| why.contains(" is a program for ")));
    }

    #[test]
    fn file_that_is_no_program_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let found = libraries(&System::here(), &[file.path().to_owned()]);
        assert!(found.is_err_and(|why| why.contains(" is no ELF program ")));
    }
}
